// Generates one text in one session. With a drafter, one verification pass checks k draft tokens
// and accepts them up to the first that differs from the model's own draw. So the text is the same
// with and without a drafter, byte for byte. (In Leviathan et al. 2023 only its distribution is.)
#pragma once
#include "engine/requests/request.h"

namespace chaski {

// Generates the text after `prompt`. Tokens of the prompt that the session holds already are not
// read again; its other tokens are dropped. Throws what Session::extend throws.
GenerateResult generate(Session& session, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink);

}  // namespace chaski
