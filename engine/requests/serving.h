// Texts of an inbox for threads that wait for them. The events of a request run in the thread that
// made the request, so each of many threads can hold a Conversation and generate its answers here.
//
// The thread of the passes never waits for a receiver. Events wait in a queue of kQueue events;
// when it is full, the request gets no passes until the receiver has taken them.
#pragma once
#include <functional>
#include <span>
#include <string_view>
#include <vector>

#include "engine/requests/inbox.h"

namespace chaski {

// The text that generate() of a session makes with the same arguments. Of the wiring of `options`,
// `rules`, `interrupt` and the functions are used. `rules` replace a compiled grammar, and the
// model of the inbox has the drafters. `priority`: as in Scheduler::add(). `interrupt` ends the
// text within 20 ms and the pass that runs. Throws the Error of the request. If a function throws,
// the request is cancelled.
GenerateResult generate(Inbox& inbox, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink, int priority = 0);

// Texts of one prompt, which is read once: one for each of the options. `sink` also gets the number
// of the text.
std::vector<GenerateResult> generate_all(
    Inbox& inbox, std::span<const TokenId> prompt, std::span<const GenerateOptions> options,
    const std::function<void(size_t which, std::string_view text)>& sink, int priority = 0);

}  // namespace chaski
