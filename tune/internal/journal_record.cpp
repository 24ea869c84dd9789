#include "tune/internal/journal_record.hpp"

#include "tune/internal/journal.capnp.h"

#include <capnp/message.h>
#include <capnp/serialize.h>

#include <cstring>
#include <string_view>
#include <type_traits>
#include <utility>

#include "libactor/assert.hpp"

namespace troupe::tune::internal {
namespace {

using Builder = wire::JournalRecord::Builder;
using Reader = wire::JournalRecord::Reader;

capnp::Data::Reader data(const std::string& bytes) {
  return {reinterpret_cast<const kj::byte*>(bytes.data()), bytes.size()};
}
kj::StringPtr text(const std::string& text) { return {text.c_str(), text.size()}; }
std::string string(capnp::Text::Reader text) { return {text.begin(), text.size()}; }
std::string string(capnp::Data::Reader bytes) {
  return {reinterpret_cast<const char*>(bytes.begin()), bytes.size()};
}

/// Enumerations have the same numbers here and there; one that a newer program wrote is refused.
template <class Name, class Enum>
Name name_of_enum(Enum value) {
  return static_cast<Name>(value);
}
template <class Enum, class Name>
Enum enum_of(Name name, Enum last) {
  if (static_cast<std::uint16_t>(name) > static_cast<std::uint16_t>(last))
    throw Exception(make_error(Errc::corrupt, "a number that stands for no known name"));
  return static_cast<Enum>(name);
}

// --- writing --------------------------------------------------------------------------------

void write(const RunBegun& from, Builder record) {
  auto out = record.initRunBegun();
  out.setName(text(from.name));
  out.setExperimentId(text(from.experiment_id));
  out.setTrainable(text(from.trainable));
  out.setSeed(from.seed);
  out.setStartedS(from.started_s);
  out.setMetric(text(from.metric));
  out.setMode(!from.mode                ? wire::ModeName::NONE
              : *from.mode == Mode::min ? wire::ModeName::MIN
                                        : wire::ModeName::MAX);
  out.setNumSamples(from.num_samples);
  out.setScheduler(text(from.scheduler));
  out.setSearcher(text(from.searcher));
  out.setSpace(text(from.space));
  out.setBuildId(text(from.build_id));
}

void write(const RunResumed& from, Builder record) {
  auto out = record.initRunResumed();
  out.setResumedS(from.resumed_s);
  out.setMode(text(from.mode));
}

void write(const TrialAdded& from, Builder record) {
  auto out = record.initTrialAdded();
  out.setTrial(from.trial);
  out.setId(text(from.id));
  out.setTag(text(from.tag));
  out.setDirectory(text(from.directory));
  out.setConfig(data(from.config));
}

void write(const TrialStarted& from, Builder record) {
  auto out = record.initTrialStarted();
  out.setTrial(from.trial);
  out.setIncarnation(from.incarnation);
  out.setFromIteration(from.from_iteration);
}

void write(const ResultRow& from, Builder record) {
  auto out = record.initResultRow();
  out.setTrial(from.trial);
  out.setIteration(from.iteration);
  out.setRow(data(from.row));
  out.setDecision(name_of_enum<wire::DecisionName>(from.decision));
  out.setByStopper(from.by_stopper);
}

void write(const CheckpointSaved& from, Builder record) {
  auto out = record.initCheckpointSaved();
  out.setTrial(from.trial);
  out.setIteration(from.iteration);
  out.setName(text(from.name));
  out.setUuid(text(from.uuid));
}

void write(const CheckpointDeleted& from, Builder record) {
  auto out = record.initCheckpointDeleted();
  out.setTrial(from.trial);
  out.setName(text(from.name));
}

void write(const TrialFailed& from, Builder record) {
  auto out = record.initTrialFailed();
  out.setTrial(from.trial);
  out.setUser(from.user);
  out.setText(text(from.text));
  out.setFailureCount(from.failure_count);
}

void write(const TrialEnded& from, Builder record) {
  auto out = record.initTrialEnded();
  out.setTrial(from.trial);
  out.setState(name_of_enum<wire::StateName>(from.state));
  out.setWhy(text(from.why));
}

void write(const TrialReopened& from, Builder record) {
  auto out = record.initTrialReopened();
  out.setTrial(from.trial);
  out.setFromBeginning(from.from_beginning);
}

void write(const TimeUsed& from, Builder record) { record.initTimeUsed().setSeconds(from.seconds); }

void write(const RunEnded& from, Builder record) { record.initRunEnded().setWhy(text(from.why)); }

// --- reading --------------------------------------------------------------------------------

RunBegun read(wire::RunBegun::Reader in) {
  RunBegun run{.name = string(in.getName()),
               .experiment_id = string(in.getExperimentId()),
               .trainable = string(in.getTrainable()),
               .seed = in.getSeed(),
               .started_s = in.getStartedS(),
               .metric = string(in.getMetric()),
               .num_samples = in.getNumSamples(),
               .scheduler = string(in.getScheduler()),
               .searcher = string(in.getSearcher()),
               .space = string(in.getSpace()),
               .build_id = string(in.getBuildId())};
  const auto mode = enum_of(in.getMode(), wire::ModeName::MAX);
  if (mode != wire::ModeName::NONE) run.mode = mode == wire::ModeName::MIN ? Mode::min : Mode::max;
  return run;
}

Record read(Reader record) {
  switch (record.which()) {
    case wire::JournalRecord::RUN_BEGUN: return read(record.getRunBegun());
    case wire::JournalRecord::RUN_RESUMED: {
      const auto in = record.getRunResumed();
      return RunResumed{.resumed_s = in.getResumedS(), .mode = string(in.getMode())};
    }
    case wire::JournalRecord::TRIAL_ADDED: {
      const auto in = record.getTrialAdded();
      return TrialAdded{.trial = in.getTrial(),
                        .id = string(in.getId()),
                        .tag = string(in.getTag()),
                        .directory = string(in.getDirectory()),
                        .config = string(in.getConfig())};
    }
    case wire::JournalRecord::TRIAL_STARTED: {
      const auto in = record.getTrialStarted();
      return TrialStarted{.trial = in.getTrial(),
                          .incarnation = in.getIncarnation(),
                          .from_iteration = in.getFromIteration()};
    }
    case wire::JournalRecord::RESULT_ROW: {
      const auto in = record.getResultRow();
      return ResultRow{.trial = in.getTrial(),
                       .iteration = in.getIteration(),
                       .row = string(in.getRow()),
                       .decision = enum_of(in.getDecision(), Decision::stop),
                       .by_stopper = in.getByStopper()};
    }
    case wire::JournalRecord::CHECKPOINT_SAVED: {
      const auto in = record.getCheckpointSaved();
      return CheckpointSaved{.trial = in.getTrial(),
                             .iteration = in.getIteration(),
                             .name = string(in.getName()),
                             .uuid = string(in.getUuid())};
    }
    case wire::JournalRecord::CHECKPOINT_DELETED: {
      const auto in = record.getCheckpointDeleted();
      return CheckpointDeleted{.trial = in.getTrial(), .name = string(in.getName())};
    }
    case wire::JournalRecord::TRIAL_FAILED: {
      const auto in = record.getTrialFailed();
      return TrialFailed{.trial = in.getTrial(),
                         .user = in.getUser(),
                         .text = string(in.getText()),
                         .failure_count = in.getFailureCount()};
    }
    case wire::JournalRecord::TRIAL_ENDED: {
      const auto in = record.getTrialEnded();
      return TrialEnded{.trial = in.getTrial(),
                        .state = enum_of(in.getState(), TrialState::error),
                        .why = string(in.getWhy())};
    }
    case wire::JournalRecord::TRIAL_REOPENED: {
      const auto in = record.getTrialReopened();
      return TrialReopened{.trial = in.getTrial(), .from_beginning = in.getFromBeginning()};
    }
    case wire::JournalRecord::TIME_USED:
      return TimeUsed{.seconds = record.getTimeUsed().getSeconds()};
    case wire::JournalRecord::RUN_ENDED:
      return RunEnded{.why = string(record.getRunEnded().getWhy())};
  }
  throw Exception(make_error(Errc::corrupt, "a kind of record that this version does not know"));
}

void append_words(kj::ArrayPtr<const kj::byte> bytes, std::vector<std::byte>& out) {
  const auto* begin = reinterpret_cast<const std::byte*>(bytes.begin());
  out.insert(out.end(), begin, begin + bytes.size());
}

/// The head of a message of one segment: number of segments less one, words of the segment.
struct OneSegment {
  std::uint32_t segments_less_one = 0;
  std::uint32_t word_count = 0;
};

void append_message(capnp::MessageBuilder& message, std::vector<std::byte>& out) {
  const auto segments = message.getSegmentsForOutput();
  TROUPE_ASSERT(segments.size() == 1, segments.size());
  const OneSegment head{.word_count = static_cast<std::uint32_t>(segments[0].size())};
  append_words({reinterpret_cast<const kj::byte*>(&head), sizeof(head)}, out);
  append_words(segments[0].asBytes(), out);
}

}  // namespace

void append_encoded(const Record& record, std::vector<std::byte>& out) {
  capnp::word scratch[256] = {};  // enough for most records: no allocation
  capnp::MallocMessageBuilder message(kj::arrayPtr(scratch, std::size(scratch)));
  auto root = message.initRoot<wire::JournalRecord>();
  std::visit([&](const auto& kind) { write(kind, root); }, record);
  if (message.getSegmentsForOutput().size() == 1) return append_message(message, out);

  const auto word_count = root.totalSize().wordCount + 1;  // the root's pointer
  capnp::MallocMessageBuilder whole(static_cast<unsigned>(word_count));
  whole.setRoot(root.asReader());
  append_message(whole, out);
}

Result<Record> decode_record(std::span<const std::byte> bytes) {
  OneSegment head;
  if (bytes.size() < sizeof(head) || bytes.size() % sizeof(capnp::word) != 0)
    return make_error(Errc::corrupt, "a record is whole words of 8 bytes");
  std::memcpy(&head, bytes.data(), sizeof(head));
  if (head.segments_less_one != 0 ||
      head.word_count != (bytes.size() - sizeof(head)) / sizeof(capnp::word))
    return make_error(Errc::corrupt, "a record is one segment that fills it");
  return fence(Errc::corrupt, [&] {
    const auto* words = reinterpret_cast<const capnp::word*>(bytes.data() + sizeof(head));
    const kj::ArrayPtr<const capnp::word> segments[] = {{words, head.word_count}};
    capnp::SegmentArrayMessageReader message(kj::arrayPtr(segments, 1));
    return read(message.getRoot<wire::JournalRecord>());
  });
}

}  // namespace troupe::tune::internal
