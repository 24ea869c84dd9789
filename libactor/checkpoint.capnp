@0xdee37a1fa0e936e8;
# The table of contents of a checkpoint file. The file around it: CHECKPOINT.md.
#
# Rules of change: fields are added at the end with the next number, never reused, never retyped;
# a default never changes. tests/golden/ keeps a file of every version that was ever written.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::schema");

struct TableOfContents {
  writer @0 :Text;           # "troupe 0.1.0"
  wallTimeNs @1 :Int64;      # since 1970, UTC: for people; never decides which checkpoint is newer
  trialId @2 :Text;
  iteration @3 :Int64;       # training_iteration after which it was written: decides which is newer
  timeTotalS @4 :Float64;
  timestepsTotal @5 :Int64;
  configJson @6 :Text;
  parentUuid @7 :Text;       # hex; the checkpoint that the trial was started from, or empty
  blobs @8 :List(Blob);      # ascending by name, byte by byte; no two of one name
}

struct Blob {
  name @0 :Text;             # 1 to 1024 bytes without NUL; never taken for a path
  dtype @1 :UInt16;          # troupe::DType; 0: bytes without a type
  shape @2 :List(UInt64);    # C order; empty for a single number, and for dtype 0
  offset @3 :UInt64;         # from the start of the file; a multiple of 64
  size @4 :UInt64;           # bytes: product of the shape times the width of dtype
  xxh3High @5 :UInt64;       # XXH3-128 of the bytes
  xxh3Low @6 :UInt64;
  codec @7 :UInt16;          # 0: as it is. Others are refused.
}
