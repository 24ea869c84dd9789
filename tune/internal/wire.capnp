@0xb1f4a7c0d2e35896;
# Configs and metrics as they travel in messages and lie in the journal. Numbers keep their bits: NaN, infinities and
# -0.0 too, and an int64 is never a double. Fields are only ever added, at the end.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::tune::internal::wire");

struct Value {
  union {
    nothing @0 :Void;
    boolean @1 :Bool;
    integer @2 :Int64;
    real @3 :Float64;
    text @4 :Text;
    list @5 :List(Value);  # lists in lists: 30 deep at most, by Cap'n Proto's default limit of nesting
  }
}

struct Entry {
  key @0 :Text;  # full name: "augment/crop"
  value @1 :Value;
}

struct Config {
  entries @0 :List(Entry);      # in path order
  emptyNested @1 :List(Text);   # full names of nested configs without entries
}

struct Metrics {
  entries @0 :List(Entry);  # in the order of telling, no name twice
}
