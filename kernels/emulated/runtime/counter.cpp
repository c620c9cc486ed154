// The counts of counter.h.
#include "counter.h"
#include "runtime.h"
#include <algorithm>

namespace emulated {
constexpr unsigned BANKS = 32, WORD = 4, SECTOR = 32, ALL = 0xffffffffu;

static bool is_shared(int operation) {
  return operation == LDMATRIX || operation == COPY_TO_SHARED || operation == LOAD_SHARED ||
         operation == STORE_SHARED;
}

// Passes over the banks for the lanes from `first` to `last`.
static unsigned passes(const Request& request, unsigned first, unsigned last, unsigned words) {
  uintptr_t asked[BANKS][BANKS];
  unsigned count[BANKS] = {}, most = 0;
  for (unsigned lane = first; lane < last; lane++) {
    if (!(request.active >> lane & 1)) continue;
    for (unsigned i = 0; i < words; i++) {
      const uintptr_t word = request.at[lane] / WORD + i;
      const unsigned bank = word % BANKS;
      uintptr_t* const begin = asked[bank];
      uintptr_t* const end = begin + count[bank];
      if (std::find(begin, end, word) != end) continue;
      *end = word;
      most = std::max(most, ++count[bank]);
    }
  }
  return most;
}

static unsigned different(uintptr_t* values, unsigned count) {
  std::sort(values, values + count);
  return (unsigned)(std::unique(values, values + count) - values);
}

void Counter::count(Line& line, const Request& request) {
  if (!request.active) return;
  const unsigned bytes = (unsigned)line.lane_bytes;
  unsigned units = 0, least = 0;
  if (is_shared(line.operation)) {
    const unsigned words = bytes < WORD ? 1 : bytes / WORD, part = BANKS / words;
    for (unsigned first = 0; first < 32; first += part) {
      const unsigned here = passes(request, first, first + part, words);
      units += here;
      least += here > 0;
    }
  } else {
    uintptr_t places[32], sectors[64];
    unsigned lanes = 0, touched = 0;
    for (unsigned lane = 0; lane < 32; lane++) {
      if (!(request.active >> lane & 1)) continue;
      const uintptr_t at = places[lanes++] = request.at[lane];
      sectors[touched++] = at / SECTOR;
      sectors[touched++] = (at + bytes - 1) / SECTOR;
    }
    units = different(sectors, touched);
    least = (different(places, lanes) * bytes + SECTOR - 1) / SECTOR;
  }
  line.requests++;
  line.units += units;
  line.least += least;
  line.worst = std::max<uint64_t>(line.worst, units);
}

Counter::Line& Counter::line(Operation operation, Place place, int lane_bytes) {
  for (Line& line : lines_)
    if (line.line == place.line && line.operation == operation && line.file == place.file &&
        line.lane_bytes == lane_bytes)
      return line;
  lines_.push_back({{place.file, place.line, operation, 0, 0, 0, 0, 0}, lane_bytes, {}});
  lines_.back().warps.resize(32);
  return lines_.back();
}

void Counter::lane(Operation operation, Place place, unsigned thread, const void* at, int bytes,
                   int lane_bytes) {
  Line& line = this->line(operation, place, lane_bytes);
  Queue& queue = line.warps[thread / 32];
  const uint64_t i = queue.reached[thread % 32]++ - queue.first;
  if (i >= queue.open.size()) queue.open.resize(i + 1);
  Request& request = queue.open[i];
  request.came |= 1u << thread % 32;
  request.at[thread % 32] = (uintptr_t)at;
  if (bytes > 0) request.active |= 1u << thread % 32;
  line.bytes += (unsigned)bytes;
  while (!queue.open.empty() && queue.open.front().came == ALL) {
    count(line, queue.open.front());
    queue.open.pop_front();
    queue.first++;
  }
}

void Counter::warp(Operation operation, Place place, const void* const* at, int lane_bytes) {
  Line& line = this->line(operation, place, lane_bytes);
  Request request{ALL, ALL, {}};
  for (unsigned lane = 0; lane < 32; lane++) request.at[lane] = (uintptr_t)at[lane];
  line.bytes += 32 * (unsigned)lane_bytes;
  count(line, request);
}

void Counter::instruction(Operation operation, Place place) {
  line(operation, place, 0).requests++;
}

void Counter::end_block() {
  for (Line& line : lines_) {
    for (Queue& queue : line.warps) {
      for (const Request& request : queue.open) count(line, request);
      queue = Queue{};
    }
  }
}

void Counter::add_to(std::vector<Site>& sites) const {
  for (const Line& line : lines_) {
    auto same = [&](const Site& site) {
      return site.line == line.line && site.operation == line.operation && site.file == line.file;
    };
    const auto found = std::find_if(sites.begin(), sites.end(), same);
    if (found == sites.end()) {
      sites.push_back(line);
      continue;
    }
    found->requests += line.requests;
    found->bytes += line.bytes;
    found->units += line.units;
    found->least += line.least;
    found->worst = std::max(found->worst, line.worst);
  }
}

void count_lane(Operation operation, Place place, const void* at, int bytes, int lane_bytes) {
  block->counter->lane(operation, place, current->linear, at, bytes, lane_bytes);
}
void count_warp(Operation operation, Place place, const void* const* at, int lane_bytes) {
  block->counter->warp(operation, place, at, lane_bytes);
}
void count_instruction(Operation operation, Place place) {
  if (current->lane == 0) block->counter->instruction(operation, place);
}
}  // namespace emulated
