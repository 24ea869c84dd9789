@0xd8c1e5b94f2a7036;
# One record of an experiment's journal (journal.hpp tells the file around it). Fields are only ever added, at the end;
# a new kind of record is a new number in the union.

using Cxx = import "/capnp/c++.capnp";
$Cxx.namespace("troupe::tune::internal::wire");

struct JournalRecord {
  union {
    runBegun @0 :RunBegun;
    runResumed @1 :RunResumed;
    trialAdded @2 :TrialAdded;
    trialStarted @3 :TrialStarted;
    resultRow @4 :ResultRow;
    checkpointSaved @5 :CheckpointSaved;
    checkpointDeleted @6 :CheckpointDeleted;
    trialFailed @7 :TrialFailed;
    trialEnded @8 :TrialEnded;
    trialReopened @9 :TrialReopened;
    timeUsed @10 :TimeUsed;
    runEnded @11 :RunEnded;
  }
}

enum ModeName { none @0; min @1; max @2; }
enum DecisionName { proceed @0; pause @1; stop @2; }
enum StateName { pending @0; running @1; paused @2; terminated @3; error @4; }

struct RunBegun {
  name @0 :Text;
  experimentId @1 :Text;
  trainable @2 :Text;
  seed @3 :UInt64;
  startedS @4 :Float64;      # since 1970
  metric @5 :Text;
  mode @6 :ModeName;
  numSamples @7 :Int64;
  scheduler @8 :Text;        # class and parameters, JSON; so the next two
  searcher @9 :Text;
  space @10 :Text;
  buildId @11 :Text;
}

struct RunResumed {
  resumedS @0 :Float64;      # since 1970
  mode @1 :Text;             # "automatic", …
}

struct TrialAdded {
  trial @0 :UInt64;          # index, in order of creation
  id @1 :Text;
  tag @2 :Text;
  directory @3 :Text;        # relative to the experiment's folder
  config @4 :Data;           # a Config of wire.capnp
}

struct TrialStarted {
  trial @0 :UInt64;
  incarnation @1 :UInt64;
  fromIteration @2 :Int64;   # of the checkpoint that it went on from; 0: from the beginning
}

struct ResultRow {
  trial @0 :UInt64;
  iteration @1 :Int64;
  row @2 :Data;              # a Metrics of wire.capnp
  decision @3 :DecisionName;
  byStopper @4 :Bool;        # else by the scheduler
}

struct CheckpointSaved {
  trial @0 :UInt64;
  iteration @1 :Int64;
  name @2 :Text;             # of the folder in the trial's
  uuid @3 :Text;
}

struct CheckpointDeleted {
  trial @0 :UInt64;
  name @1 :Text;
}

struct TrialFailed {
  trial @0 :UInt64;
  user @1 :Bool;             # by its own code; else by machine or process
  text @2 :Text;
  failureCount @3 :Int64;    # those that count against max_failures, this one included
}

struct TrialEnded {
  trial @0 :UInt64;
  state @1 :StateName;
  why @2 :Text;
}

struct TrialReopened {
  trial @0 :UInt64;
  fromBeginning @1 :Bool;
}

struct TimeUsed {
  seconds @0 :Float64;       # of the budget, by all drivers so far
}

struct RunEnded {
  why @0 :Text;
}
