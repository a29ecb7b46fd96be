// How the system is asked to map the weights of a file.
#include "models/architecture.h"
#include "tests/kit/engine_support.h"
#include "tests/kit/program.h"

using namespace chaski;
using namespace chaski::test;

TEST_CASE("engine: weights that a token reads whole are mapped in huge pages, experts are not") {
  if (!have("/sys/kernel/mm/transparent_hugepage")) return;
  const TempFolder tmp;
  const std::string model = tmp / "experts.quipu";
  REQUIRE(chaski_run({"convert", golden("models/qwen3moe"), model}).status == 0);
  const auto engine = open_on_cpu(model, Format::f16);
  int whole = 0, parts = 0;
  for (const Model::BoundWeight& w : engine->model().weights) {
    // Weights share the pages at their ends.
    const auto begin = uintptr_t(w.weight->data), page = (begin + 4095) / 4096 * 4096;
    if (page + 4096 > begin + w.weight->info.bytes()) continue;
    const bool asked = asked_for_huge_pages(reinterpret_cast<const void*>(page));
    CAPTURE(w.weight->info.name);
    if (w.role == Role::experts || w.role == Role::token_table) {
      CHECK(!asked);
      ++parts;
    } else if (w.role == Role::matmul || w.role == Role::head) {
      CHECK(asked);
      ++whole;
    }
  }
  CHECK(whole > 0);
  CHECK(parts > 0);
}
