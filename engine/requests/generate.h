// The loop that makes one text: a prompt goes in, bytes come out. A drafter guesses k tokens ahead;
// one pass checks them all, and they are taken up to the first that is not what the model draws
// itself. The text is therefore the same, byte for byte, with a drafter and without (compare
// Leviathan et al. 2023, where it is the same only in distribution).
#pragma once
#include "engine/requests/request.h"

namespace chaski {

// Generates what comes after `prompt`. What the session holds of the prompt already is not
// evaluated again; what else it holds is forgotten. Throws what Session::extend throws.
GenerateResult generate(Session& session, std::span<const TokenId> prompt,
                        const GenerateOptions& options, const Sink& sink);

}  // namespace chaski
