# chaski: the only build. It finds sources by wildcard and writes to build/. `make help` lists the targets.

# Use all cores, unless -j was given or this make is part of another one.
ifeq ($(MAKELEVEL),0)
MAKEFLAGS += -j$(shell nproc)
endif

all:

# On a fresh machine the first build installs the packages that it needs (as root), or names them. make builds this empty included
# makefile before anything else, so the compiler is installed in time.
ifneq ($(filter-out clean help format,$(or $(MAKECMDGOALS),all)),)
include build/.setup
endif
build/.setup: scripts/setup.sh
	@mkdir -p build
	scripts/setup.sh
	@touch $@

CXX      ?= g++
PREFIX   ?= /usr/local
MODE     ?= release
comma    := ,
BUILD    := build$(if $(filter-out release,$(MODE)),/$(MODE))$(if $(filter 1,$(STATIC)),/static)$(if $(findstring zig,$(CXX)),-zig)
TARGET_ARCH_NAME := $(firstword $(subst -, ,$(shell $(CXX) -dumpmachine 2>/dev/null)))

Q        := $(if $(V),,@)
WARN     := -Wall -Wextra -Werror
# No -ffast-math and no contraction: the exactness contract (HACKING.md) fixes every addition. The two -fno- options change no result.
CXXFLAGS := -std=c++20 -I. $(WARN) -ffp-contract=off -fno-math-errno -fno-trapping-math -pthread
# A larger heap for gcc's garbage collector: a sixth of the compile time less, 25% more memory, the same code.
CXXFLAGS += $(if $(findstring clang,$(CXX)),,--param ggc-min-heapsize=2000000 --param ggc-min-expand=1000)
CHECKED  := -fsanitize=address,undefined -fno-sanitize-recover=undefined -fno-omit-frame-pointer
CXXFLAGS += $(if $(filter release,$(MODE)),-O2)
CXXFLAGS += $(if $(filter debug,$(MODE)),-O1 -g1 -DCHASKI_DEBUG)
CXXFLAGS += $(if $(filter asan,$(MODE)),-O1 -g1 -DCHASKI_DEBUG $(CHECKED))
# For code that is compiled more often than it runs: the command line, importers (their loops over weights are in quant/), requests,
# sessions (few instructions for a token), templates, the parsers of schemas. -Og takes a fifth to a third less time than -O1 and -O2.
QUICK    := $(if $(filter release,$(MODE)),-Og)
TESTS_QUICK := $(if $(filter-out debug,$(MODE)),-O0)
SANITIZE := $(if $(filter asan,$(MODE)),$(CHECKED))
LIBS     := -lfmt -lpcre2-8 -lutf8proc -lxxhash -pthread
EDIT     := -ledit
# As shared libraries, libevent costs every command 2 to 4 ms at its start (of 7 without it), so it is linked statically if it can be.
EVENT_A  := $(filter /%,$(shell $(CXX) -print-file-name=libevent_core.a))
EVENT    := $(if $(EVENT_A),-Wl$(comma)-Bstatic) -levent_extra -levent_core $(if $(EVENT_A),-Wl$(comma)-Bdynamic)
# Debian has no static fmt, so a static build compiles it from its headers. Its objects differ and go to build/static.
ifeq ($(STATIC),1)
CXXFLAGS += -DFMT_HEADER_ONLY
LIBS     := -static-libstdc++ -static-libgcc -Wl,-Bstatic -lpcre2-8 -lutf8proc -lxxhash -Wl,-Bdynamic -pthread
EDIT     := -Wl,-Bstatic -ledit -ltinfo -lbsd -lmd -Wl,-Bdynamic
EVENT    := -Wl,-Bstatic -levent_extra -levent_core -Wl,-Bdynamic
endif

# Instruction sets: each object has its own flags; the program chooses one at run time. As with GPUs, AVX-VNNI, AVX-512 and AMX are
# built if this machine has them, or for all machines if RELEASE=1 is given.
has_flag = $(shell grep -qsw $1 /proc/cpuinfo && echo 1)
AVXVNNI_ISAS := $(if $(filter 1,$(RELEASE) $(call has_flag,avx_vnni)),avxvnni)
AVX512_ISAS := $(if $(filter 1,$(RELEASE) $(call has_flag,avx512vl)),avx512 avx512vnni avx512vbmi)
AMX_ISAS    := $(if $(filter 1,$(RELEASE) $(call has_flag,amx_int8)),amx)
ISA_x86_64  := scalar avx2 $(AVXVNNI_ISAS) $(AVX512_ISAS) $(AMX_ISAS)
ISA_aarch64 := scalar neon neondot
ISAS     := $(ISA_$(TARGET_ARCH_NAME))
ISA_SRC  := $(ISAS:%=ggml-like-tensor/cpu/isa_%.cpp)
ISA_NAMES := '-DCHASKI_ISAS=$(patsubst %,ISA(%),$(ISAS))'
AVX2     := -mavx2 -mfma -mf16c
AVX512   := -mavx512f -mavx512bw -mavx512vl -mavx512dq $(AVX2)
$(BUILD)/ggml-like-tensor/cpu/isa_avx2.o:       EXTRA := $(AVX2)
$(BUILD)/ggml-like-tensor/cpu/isa_avxvnni.o:    EXTRA := $(AVX2) -mavxvnni
$(BUILD)/ggml-like-tensor/cpu/isa_neondot.o:    EXTRA := -march=armv8.2-a+dotprod
$(BUILD)/ggml-like-tensor/cpu/isa_avx512.o:     EXTRA := $(AVX512)
$(BUILD)/ggml-like-tensor/cpu/isa_avx512vnni.o: EXTRA := $(AVX512) -mavx512vnni
$(BUILD)/ggml-like-tensor/cpu/isa_avx512vbmi.o $(BUILD)/ggml-like-tensor/cpu/isa_amx.o: EXTRA := $(AVX512) -mavx512vnni -mavx512vbmi
# gcc 12 warns about uninitialized values inside its own intrinsics headers. The scalar kernels are the reference and need no -O3.
$(filter-out %scalar.o,$(ISA_SRC:%.cpp=$(BUILD)/%.o)): EXTRA += $(if $(filter release,$(MODE)),-O3)
$(BUILD)/ggml-like-tensor/cpu/isa_scalar.o: EXTRA += $(if $(filter release,$(MODE)),-O1)
$(ISA_SRC:%.cpp=$(BUILD)/%.o): EXTRA += -Wno-maybe-uninitialized -Wno-uninitialized
CHECKSUM_AVX2 := $(BUILD)/ggml-like-tensor/base/checksum_avx2.o
$(CHECKSUM_AVX2): EXTRA := $(if $(filter x86_64,$(TARGET_ARCH_NAME)),-mavx2)
$(BUILD)/quant/%.o: EXTRA := $(if $(filter release,$(MODE)),-O3)

# Most of the time to compile a file goes into the headers that it reads and the templates that it uses, and the files of a folder share
# them. So each folder is one unit, compiled as a whole. Folders named here are parts of another's unit, because they read the same headers
# and have the same flags; a unit takes at most as long as the largest folder. A new file recompiles the unit that its folder is in.
# MODE=debug compiles each file by itself, which shows missing includes. Sanitized units stay small, because they take more memory.
ifeq ($(MODE),release)
WITH_engine/session      := engine/pages engine/passes engine/requests engine/drafting
WITH_engine/measure      := engine/loadtest
WITH_engine/conversation := engine/text/jinja engine/grammar/schema
WITH_engine/grammar      := engine/text engine/text/tokenizer engine/sampling/steps engine/sampling
WITH_engine/shelf        := engine/machine
WITH_main/flags          := main/terminal main
WITH_models/import/hf    := models/import/tokenizer models/import models/import/gguf
WITH_models              := models/arch models/blocks models/heads
WITH_ggml-like-tensor    := ggml-like-tensor/base ggml-like-tensor/file ggml-like-tensor/ops
WITH_quant               := quant/own quant/gguf quant/packed quant/encode
WITH_tests/models        := tests/quantize
WITH_tests/serve         := tests/api tests/fuzz
WITH_tests/text          := tests/grammar
WITH_tests/quant         := tests/kit tests
endif
FOLDERS  := engine main models quant ggml-like-tensor tests
# Runs on several machines need OpenMPI: built if its header is there, or if MPI=1 is given. The library is loaded by such runs only.
MPI_H    := $(firstword $(wildcard /usr/lib/$(TARGET_ARCH_NAME)-linux-gnu/openmpi/include/mpi.h /usr/include/openmpi-$(TARGET_ARCH_NAME)/mpi.h))
MPI      ?= $(if $(MPI_H),$(if $(filter 1,$(STATIC)),0,1),0)
$(if $(filter 1,$(MPI)),$(if $(MPI_H),,$(error MPI=1 needs the header of OpenMPI: scripts/setup.sh --mpi)))
NOT_MPI  := engine/passes/mpi_$(if $(filter 1,$(MPI)),absent,link).cpp
SOURCES  := $(filter-out $(NOT_MPI),$(sort $(shell find $(FOLDERS) -name '*.cpp')))
# TEST_FILES limits the test program to these files of tests/.
ifneq ($(TEST_FILES),)
SOURCES  := $(filter-out $(filter-out $(TEST_FILES) tests/main.cpp tests/kit/% tests/fuzz/%,$(filter tests/%,$(SOURCES))),$(SOURCES))
endif
ALONE    := engine/passes/mpi_link.cpp ggml-like-tensor/base/checksum_avx2.cpp tests/main.cpp tests/fuzz/main.cpp \
  $(filter ggml-like-tensor/cpu/isa_% tests/cuda_shim/%,$(SOURCES))
IN_UNITS := $(if $(filter debug,$(MODE)),,$(filter-out $(ALONE),$(SOURCES)))
UNITS    := $(addsuffix unit,$(sort $(dir $(IN_UNITS))))
UNITS    := $(filter-out $(foreach unit,$(UNITS),$(WITH_$(unit:%/unit=%):%=%/unit)),$(UNITS))
# $(call unit_files,FOLDER/unit): the sources of that unit.
unit_files = $(filter $(foreach folder,$(WITH_$(1:%/unit=%)) $(1:%/unit=%),$(wildcard $(folder)/*.cpp)),$(IN_UNITS))
# $(call units_of,SOURCES): the units that have some of them.
units_of = $(foreach unit,$(UNITS),$(if $(filter $1,$(call unit_files,$(unit))),$(unit)))

LIB_SRC  := $(ISA_SRC) $(filter-out ggml-like-tensor/cpu/isa_% main/% tests/%,$(SOURCES))
MAIN_SRC := $(filter main/%,$(SOURCES))
TEST_SRC := $(filter-out tests/fuzz/main.cpp tests/cuda_shim/%,$(filter tests/%,$(SOURCES)))

# CUDA objects are built if nvcc and a GPU are present, for that GPU, or if CUDA=1 is given. RELEASE=1 builds for all GPUs from sm_80 on.
# A GPU without code of its own gets compute_90's PTX, which is compiled when the program starts.
NVCC     ?= $(shell command -v nvcc)
GPU      := $(firstword $(wildcard /dev/nvidia[0-9]* /dev/nvidiactl /dev/dxg /proc/driver/nvidia/version))
CUDA     ?= $(if $(NVCC),$(if $(or $(GPU),$(filter 1,$(RELEASE))),1,0),0)
ONE_ARCH := $(if $(GPU),-arch=native,-gencode arch=compute_90$(comma)code=[sm_90$(comma)compute_90])
ALL_ARCH := -gencode arch=compute_80,code=sm_80 -gencode arch=compute_90a,code=sm_90a -gencode arch=compute_90,code=[sm_100,sm_120,compute_90]
CUDA_ARCH ?= $(if $(filter 1,$(RELEASE)),$(ALL_ARCH),$(ONE_ARCH))
CUDA_HOST := $(filter-out cuda/absent.cpp,$(wildcard cuda/*.cpp cuda/*/*.cpp))
ifeq ($(CUDA),1)
CUDA_SRC := $(wildcard cuda/*/*.cu)
CUDA_NOTE := :
else
CUDA_NOTE := $(if $(NVCC),echo "chaski: built without CUDA kernels$(if $(GPU),,$(comma) there is no GPU here): make CUDA=1 builds them",:)
endif
ifneq ($(CUDA_SRC),)
CUDA_HOME := $(patsubst %/bin/nvcc,%,$(realpath $(NVCC)))
LIB_SRC  += $(CUDA_HOST)
$(CUDA_HOST:%.cpp=$(BUILD)/%.o): EXTRA := -isystem $(CUDA_HOME)/include
LIBS     += -L$(CUDA_HOME)/lib64 -lcudart_static -ldl -lrt
else
LIB_SRC  += cuda/absent.cpp
endif

# The files of cuda/, built by the host compiler over tests/cuda_shim for tests-shim.bin. They always run under AddressSanitizer and
# UBSan's checks of alignment and bounds (make asan: all checks), because a kernel's typical fault is an access that a host does not
# notice. Uses of a local variable after its scope are not checked, which saves a sixth of the compile time. The emulator itself is
# built without sanitizers and with -O3. The files are three units, because most of their templates are the same: separately they take
# twice as long.
SHIM_ALL     := $(wildcard cuda/*/*.cu) $(CUDA_HOST)
SHIM_matmul  := $(filter cuda/matmul/%,$(SHIM_ALL))
SHIM_rows    := $(filter cuda/attention/% cuda/draw/% cuda/rows/%,$(SHIM_ALL))
SHIM_backend := $(filter-out $(SHIM_matmul) $(SHIM_rows),$(SHIM_ALL))
SHIM_KERNELS := $(patsubst %,$(BUILD)/shim/%.o,matmul rows backend)
TEST_KERNELS := $(wildcard tests/cuda/*.cu)
SHIM_RUNTIME := $(patsubst %,$(BUILD)/shim/%.o,$(wildcard tests/cuda_shim/*.cpp))
SHIM_OBJ := $(SHIM_KERNELS) $(SHIM_RUNTIME)
SHIM_TEST_KERNELS := $(TEST_KERNELS:%=$(BUILD)/shim/%.o)
SHIM     := -Itests/cuda_shim -Wno-unknown-pragmas -Wno-maybe-uninitialized -Wno-uninitialized -Wno-subobject-linkage
$(SHIM_KERNELS) $(SHIM_TEST_KERNELS): EXTRA := $(if $(filter release,$(MODE)),-Og) -g1 $(SHIM) -fno-sanitize-address-use-after-scope -fsanitize=address,alignment,bounds -fno-sanitize-recover=alignment,bounds -fno-omit-frame-pointer -fsanitize-sections=shim_shared
$(SHIM_RUNTIME): EXTRA := $(if $(filter release,$(MODE)),-O3) $(SHIM) -DCHASKI_ADDRESS_SANITIZER

# Slow ones first, so that all cores finish at about the same time.
SLOW_SRC := cuda/matmul/matmul_rows.cu cuda/matmul/matmul_tiles.cu cuda/attention/attention.cu
CUDA_SRC := $(filter $(SLOW_SRC),$(CUDA_SRC)) $(filter-out $(SLOW_SRC),$(CUDA_SRC))
UNIT_OBJ := $(UNITS:%=$(BUILD)/%.o)
LIB_OBJ  := $(CUDA_SRC:%.cu=$(BUILD)/%.cu.o) $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out $(IN_UNITS),$(LIB_SRC))) $(filter-out $(BUILD)/main/% $(BUILD)/tests/%,$(UNIT_OBJ)) \
  $(BUILD)/models/bundled/bundled.o
MAIN_OBJ := $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out $(IN_UNITS),$(MAIN_SRC))) $(filter $(BUILD)/main/%,$(UNIT_OBJ)) \
  $(BUILD)/main/serve/page_files.o $(BUILD)/main/api/openapi_file.o
TEST_OBJ := $(patsubst %.cpp,$(BUILD)/%.o,$(filter-out $(IN_UNITS),$(TEST_SRC))) $(filter $(BUILD)/tests/%,$(UNIT_OBJ))
$(SHIM_OBJ) $(SHIM_TEST_KERNELS) $(filter $(BUILD)/tests/cuda/%,$(TEST_OBJ)): Makefile

all: $(BUILD)/chaski

# Units that take less than 11 CPU seconds come last, so that all cores finish at about the same time.
SHORT    := $(filter %/absent.o %/mpi_link.o %/checksum_avx2.o %/cpu/unit.o %/shelf/unit.o %/main/serve/unit.o $(BUILD)/models/unit.o,$(MAIN_OBJ) $(LIB_OBJ))
$(BUILD)/chaski: $(filter-out $(SHORT),$(filter %.cu.o,$(LIB_OBJ)) $(MAIN_OBJ) $(LIB_OBJ)) $(BUILD)/libchaski.a $(MAIN_OBJ)
	$(Q)$(CXX) $(SANITIZE) -o $@ $(MAIN_OBJ) $(BUILD)/libchaski.a $(EDIT) $(EVENT) $(LIBS)
	@echo "  LINK $@"; $(CUDA_NOTE)

# Two test programs: the CUDA cases over the shim, all other cases over the library. If several objects define an inline function, the
# linker keeps the first one; so the CUDA program gets the checked functions and the other program the optimized ones.
CUDA_TEST_OBJ := $(filter $(BUILD)/tests/cuda/%,$(TEST_OBJ)) $(BUILD)/tests/main.o
$(BUILD)/tests.bin: $(LIB_OBJ) $(filter $(BUILD)/main/api/%,$(MAIN_OBJ)) $(filter-out $(CUDA_TEST_OBJ),$(TEST_OBJ)) $(BUILD)/tests/main.o
	@echo "  LINK $@"
	$(Q)$(CXX) $(SANITIZE) -o $@ $^ $(LIBS)
$(BUILD)/tests-shim.bin: $(SHIM_OBJ) $(SHIM_TEST_KERNELS) $(filter-out $(BUILD)/cuda/%,$(LIB_OBJ)) $(CUDA_TEST_OBJ)
	@echo "  LINK $@"
	$(Q)$(CXX) $(CHECKED) -o $@ $^ $(LIBS)

# The whole program over the shim, to test --device cuda without a GPU.
$(BUILD)/tests/chaski-shim: $(SHIM_OBJ) $(MAIN_OBJ) $(BUILD)/libchaski.a
	@echo "  LINK $@"
	$(Q)$(CXX) $(CHECKED) -o $@ $(SHIM_OBJ) $(MAIN_OBJ) $(BUILD)/libchaski.a $(EDIT) $(EVENT) $(LIBS)

# For a GPU: the library's own objects, and tests built with the real CUDA headers.
DEVICE_OBJ := $(patsubst %.cpp,$(BUILD)/device/%.o,$(wildcard tests/main.cpp tests/cuda/*.cpp)) $(TEST_KERNELS:%=$(BUILD)/%.o)
$(BUILD)/tests-cuda.bin: $(DEVICE_OBJ) $(BUILD)/libchaski.a
	@echo "  LINK $@"
	$(Q)$(CXX) $(SANITIZE) -o $@ $(DEVICE_OBJ) $(BUILD)/libchaski.a $(LIBS)
$(BUILD)/device/%.o: %.cpp
	@mkdir -p $(@D)
	@echo "  CXX $<, for the device"
	$(Q)$(CXX) $(CXXFLAGS) -isystem $(CUDA_HOME)/include -MMD -MP -c $< -o $@
$(BUILD)/shim/%.o: %
	@mkdir -p $(@D)
	@echo "  CXX $<, on the shim"
	$(Q)$(CXX) $(CXXFLAGS) $(EXTRA) -MMD -MP -x c++ -c $< -o $@

$(BUILD)/libchaski.a: $(LIB_OBJ) $(BUILD)/.cuda
	@echo "  AR $@"
	$(Q)rm -f $@ && $(AR) rcs $@ $(LIB_OBJ)
# Changes when CUDA or CUDA_ARCH changes.
$(BUILD)/.cuda: always
	@mkdir -p $(@D); echo '$(CUDA) $(CUDA_ARCH)' | cmp -s - $@ || echo '$(CUDA) $(CUDA_ARCH)' > $@

# Small files take most of their compile time for headers. The headers that all files read are compiled once, for files with the plain
# flags.
FIRST_FOR := $(filter-out $(BUILD)/cuda/% $(BUILD)/quant/% $(CHECKSUM_AVX2) $(ISA_SRC:%.cpp=$(BUILD)/%.o) %.cu.o %/bundled.o %/page_files.o %/openapi_file.o,$(MAIN_OBJ) $(LIB_OBJ))
TESTS_FIRST_FOR := $(filter-out $(BUILD)/tests/main.o $(BUILD)/tests/lanes/%,$(TEST_OBJ))
$(FIRST_FOR): $(BUILD)/standard.h.gch
$(FIRST_FOR): EXTRA := -include $(BUILD)/standard.h
QUICK_ROOMS := main models $(addprefix engine/,conversation drafting grammar/schema loadtest machine measure pages passes requests session shelf text/jinja)
$(filter $(QUICK_ROOMS:%=$(BUILD)/%/%),$(FIRST_FOR)): EXTRA += $(QUICK)
# Grammars, tokenizers and samplers take a quarter less time with -O1, and no more instructions for a token.
$(filter $(BUILD)/engine/grammar/%,$(FIRST_FOR)): EXTRA += $(if $(filter release,$(MODE)),-O1)
$(TESTS_FIRST_FOR): $(BUILD)/tests/kit/doctest.h.gch
# gcc 12 warns about the standard library's own code if it comes from a precompiled header.
$(TESTS_FIRST_FOR): EXTRA = $(TESTS_QUICK) $(if $(findstring /cuda/,$@),$(SHIM)) -include $(BUILD)/tests/kit/doctest.h -Wno-array-bounds -Wno-stringop-overflow -Wno-restrict -Wno-maybe-uninitialized
$(BUILD)/tests/main.o: EXTRA := $(TESTS_QUICK)
# Lanes that are tested on machines without their instructions.
$(BUILD)/tests/lanes/%.o: EXTRA := $(TESTS_QUICK) $(if $(call has_flag,avx2),$(AVX2)) -Wno-uninitialized -Wno-maybe-uninitialized
$(BUILD)/tests/kit/doctest.h.gch: EXTRA := $(TESTS_QUICK)
$(BUILD)/tests/kit/doctest.h.gch: tests/kit/doctest.h
$(BUILD)/standard.h.gch: EXTRA :=
$(BUILD)/standard.h.gch: ggml-like-tensor/base/standard.h
$(BUILD)/standard.h.gch $(BUILD)/tests/kit/doctest.h.gch:
	@mkdir -p $(@D)
	@echo "  CXX $<, once for all"
	$(Q)$(CXX) $(CXXFLAGS) $(EXTRA) -w -MMD -MP -x c++-header -c $< -o $@

$(BUILD)/engine/passes/mpi_link.o: EXTRA += -isystem $(dir $(MPI_H)) -DOMPI_SKIP_MPICXX

# backends.cpp gets the names of the instruction sets.
BACKENDS := $(addprefix $(BUILD)/ggml-like-tensor/cpu/,unit.o backends.o) build/tsan/ggml-like-tensor/cpu/unit.o
$(BACKENDS): $(BUILD)/.isas
$(BACKENDS): EXTRA += $(ISA_NAMES)
$(BUILD)/.isas: always
	@mkdir -p $(@D); echo '$(ISAS)' | cmp -s - $@ || echo '$(ISAS)' > $@

# A unit is rewritten only if its folder has other files than before.
write_unit = mkdir -p $(@D); printf '\#include "%s"\n' $1 | cmp -s - $@ || printf '\#include "%s"\n' $1 > $@
$(UNITS:%=$(BUILD)/%.cpp): $(BUILD)/%.cpp: always
	@$(call write_unit,$(call unit_files,$*))
$(SHIM_KERNELS:.o=.cpp): $(BUILD)/shim/%.cpp: always
	@$(call write_unit,$(SHIM_$*))
$(SHIM_KERNELS): $(BUILD)/shim/%.o: $(BUILD)/shim/%.cpp
	@echo "  CXX $(SHIM_$*), on the shim"
	$(Q)$(CXX) $(CXXFLAGS) $(EXTRA) -MMD -MP -x c++ -c $< -o $@
$(UNIT_OBJ): $(BUILD)/%.o: $(BUILD)/%.cpp
	@echo "  CXX $(call unit_files,$*)"
	$(Q)$(CXX) $(CXXFLAGS) $(EXTRA) -MMD -MP -c $< -o $@

$(BUILD)/%.o: %.cpp
	@mkdir -p $(@D)
	@echo "  CXX $<"
	$(Q)$(CXX) $(CXXFLAGS) $(EXTRA) -MMD -MP -c $< -o $@

# The bundled model, as bytes in the binary's read-only data.
$(BUILD)/models/bundled/bundled.o: models/bundled/bundled.S models/bundled/story.quipu
	@mkdir -p $(@D)
	$(CXX) -I. -c $< -o $@

# The chat page that `chaski serve` answers with, in the same way.
$(BUILD)/main/serve/page_files.o: main/serve/page_files.S $(wildcard main/serve/page/*)
	@mkdir -p $(@D)
	$(CXX) -I. -c $< -o $@

# The description of its endpoints, to which it adds what the code declares.
$(BUILD)/main/api/openapi_file.o: main/api/openapi_file.S main/api/openapi.json
	@mkdir -p $(@D)
	$(CXX) -I. -c $< -o $@

# -fmad=false: no contraction on the device.
NVCCFLAGS := -std=c++20 -O3 -I. -fmad=false --expt-relaxed-constexpr -DFMT_USE_CONSTEXPR=1 -Xcompiler -Wall,-Wextra,-ffp-contract=off $(CUDA_ARCH)
$(CUDA_SRC:%.cu=$(BUILD)/%.cu.o) $(TEST_KERNELS:%=$(BUILD)/%.o): $(BUILD)/.cuda
$(BUILD)/%.cu.o: %.cu
	@mkdir -p $(@:.o=.kept)
	@echo "  NVCC $<"
	$(Q)$(NVCC) $(NVCCFLAGS) -MMD -MP -MF $(@:.o=.d) -keep -keep-dir $(@:.o=.kept) -c $< -o $@
	@if grep -q 'trap;' $(@:.o=.kept)/*.ptx; then \
	  echo "$<: a kernel ends in a trap: it reads a table of the host (quant/entry.h) or what nvcc takes to be impossible"; rm -f $@; exit 1; fi
	@rm -r $(@:.o=.kept)

# The largest kernels for architectures that a build without a GPU leaves out. ptxas -O1 takes less time than its default, and finds the same
# errors.
define ARCH_RULE
$(BUILD)/sm_$1/%.cubin: %.cu
	@mkdir -p $$(@D)
	@echo "  NVCC $$<, for sm_$1"
	$$(Q)$$(NVCC) $$(filter-out $$(CUDA_ARCH),$$(NVCCFLAGS)) $2 -MMD -MP -MT $$@ -MF $$(@:.cubin=.d) -arch=sm_$1 -cubin $$< -o $$@
endef
OTHER_ARCHS := 80 120
$(foreach arch,$(OTHER_ARCHS),$(eval $(call ARCH_RULE,$(arch),-Xptxas -O1)))
ARCH_CUBINS := $(foreach arch,$(OTHER_ARCHS),$(addprefix $(BUILD)/sm_$(arch)/cuda/,attention/attention.cubin matmul/matmul_rows.cubin))
archs: $(ARCH_CUBINS)

# What nvcc makes of some kernels, compared with a table. It is for sm_90, whatever GPU this machine has.
$(eval $(call ARCH_RULE,90,))
SASS_CUBINS := $(addprefix $(BUILD)/sm_90/cuda/,attention/attention.cubin matmul/matmul_rows.cubin rows/pointwise.cubin)
sass:
	@if NVCC=$(NVCC) scripts/check/check_sass.sh --ready; then $(MAKE) $(SASS_CUBINS) && scripts/check/check_sass.sh $(SASS_CUBINS); fi
.PHONY: archs sass
-include $(ARCH_CUBINS:.cubin=.d) $(SASS_CUBINS:.cubin=.d)

run: $(BUILD)/chaski
	./$(BUILD)/chaski run

# A chat model, fetched once into the user's cache folder.
chat: $(BUILD)/chaski
	@model=$$(scripts/chat_model.sh) && ./$(BUILD)/chaski chat -m "$$model"

TEST_JOBS = $(patsubst -j%,TEST_JOBS=%,$(filter-out -j,$(filter -j%,$(MAKEFLAGS))))
# TESTS limits the run to one program. CHASKI_TEST_DATA has real models, vocabularies and texts; a test whose data is missing prints
# SKIPPED.
TESTS := $(BUILD)/tests-shim.bin $(BUILD)/tests.bin
# What the shim does where a device may do several things; each case gets one of these (tests/cuda_shim/modes.h).
export TEST_MODES := plain seed=1 rtx3060,seed=2 rtx5090,early h100,seed=3,truncate
test: $(BUILD)/chaski $(if $(filter %-shim.bin,$(TESTS)),$(BUILD)/tests/chaski-shim) $(TESTS) $(BUILD)/faults.so
	CHASKI_FAULTS_SHIM=$(BUILD)/faults.so CHASKI_BIN=$(BUILD)/chaski CHASKI_SHIM_BIN=$(BUILD)/tests/chaski-shim $(TEST_JOBS) scripts/check/test.sh $(TESTS) -- $(TEST_ARGS)

# Published model files, fetched once into the user's cache folder.
real: $(BUILD)/chaski $(BUILD)/tests.bin
	folder=$$(scripts/real_models.sh) && CHASKI_REAL_MODELS=$$folder CHASKI_BIN=$(BUILD)/chaski scripts/check/test.sh $(BUILD)/tests.bin -- -tc='real/*'

# Clients that others wrote, against chaski serve; skipped if their Python packages are not installed. The chat page in Chromium.
clients: $(BUILD)/chaski
	scripts/check/openai_client.py $(BUILD)/chaski
	scripts/check/anthropic_client.py $(BUILD)/chaski
	scripts/check/ollama_client.py $(BUILD)/chaski
	scripts/check/langchain_client.py $(BUILD)/chaski
	scripts/check/llm_client.py $(BUILD)/chaski
	scripts/check/page.py $(BUILD)/chaski
	scripts/check/openapi.py $(BUILD)/chaski
# Hostile clients: slow, leaving and malformed ones, for some minutes.
abuse: $(BUILD)/chaski
	scripts/check/abuse.py $(BUILD)/chaski
.PHONY: clients abuse

ifeq ($(CUDA),1)
test-cuda: $(BUILD)/tests-cuda.bin
	./$(BUILD)/tests-cuda.bin $(TEST_ARGS)
else
test-cuda:
	@echo "SKIPPED: built without CUDA kernels, so there is nothing to test; make CUDA=1 test-cuda builds them"
endif

# Failing system calls, limits and kills (tests/faults/drive.py lists the cases).
$(BUILD)/faults.so: tests/faults/shim.c
	$(CC) -O1 -Wall -Wextra -shared -fPIC -o $@ $< -ldl
faults: $(BUILD)/chaski $(BUILD)/faults.so
	tests/faults/drive.py $(BUILD)/chaski $(BUILD)/faults.so $(FAULTS)
.PHONY: faults

asan: export LSAN_OPTIONS = suppressions=$(CURDIR)/tests/leaks.txt:print_suppressions=0
asan:
	$(MAKE) MODE=asan test
# The cases of code that reads untrusted files, and of memory that threads share.
PARSER_TESTS = $(foreach name,fuzz engine/verify engine/non_finite $(addprefix models/,bad_* export_* import import_* mutation packed_*) \
  $(addprefix tensor/,base crew metadata quipu*) $(addprefix text/,chat_* normalizer tokenizer* utf8), \
  $(or $(wildcard tests/$(name)_test.cpp),$(error no file tests/$(name)_test.cpp)))
asan-parsers:
	$(MAKE) MODE=asan TEST_FILES='$(PARSER_TESTS)' TESTS=build/asan/tests.bin test
.PHONY: asan-parsers

# Code that threads share (crew, sessions, files, the server) under ThreadSanitizer: first in the tests' process, then in a server under
# the load of tests/serve. Its objects are in build/tsan. Models, formats, commands, the quantizer and other kernels share nothing, so their
# plain objects are used. A report ends the program that it is about, so that a case fails.
TSAN_TESTS := $(addprefix tests/engine/,expert_cache_test.cpp inbox_test.cpp serving_test.cpp exactness_test.cpp verify_test.cpp) tests/tensor/crew_test.cpp tests/tensor/quipu_test.cpp
TSAN_SRC   := $(filter-out engine/quantize/% engine/measure/% engine/loadtest/%,$(filter ggml-like-tensor/% engine/% main/api/% main/serve/%,$(IN_UNITS))) $(TSAN_TESTS)
TSAN_UNITS := $(call units_of,$(TSAN_SRC))
TSAN_ISA   := $(if $(shell grep -sw avx2 /proc/cpuinfo),avx2,scalar)
TSAN_OBJ   := $(TSAN_UNITS:%=build/tsan/%.o) build/tsan/ggml-like-tensor/cpu/isa_$(TSAN_ISA).o
TSAN_CASES := expert cache*,inbox*,serving*,crew*,thread count*,exact: any number*,exact: alone*,exact: rewound*,exact: text with a draft*,quipu*,verify*
TSAN_LOAD  := serve*
tsan: build/tsan/tests.bin build/tsan/chaski build/tests.bin
	export CHASKI_ISA=$(TSAN_ISA) CHASKI_BIN=build/tsan/chaski TSAN_OPTIONS=halt_on_error=1; \
	  $< -tc='$(TSAN_CASES)' && build/tests.bin -tc='$(TSAN_LOAD)'
build/tsan/tests.bin: $(filter-out build/tsan/main/%,$(TSAN_OBJ)) build/tsan/tests/main.o build/libchaski.a
	@echo "  LINK $@"
	$(Q)$(CXX) -fsanitize=thread -o $@ $^ $(LIBS)
build/tsan/chaski: $(filter-out build/tsan/tests/%,$(TSAN_OBJ)) $(filter-out build/main/api/unit.o build/main/serve/unit.o,$(MAIN_OBJ)) build/libchaski.a
	@echo "  LINK $@"
	$(Q)$(CXX) -fsanitize=thread -o $@ $^ $(EDIT) $(EVENT) $(LIBS)
build/tsan/ggml-like-tensor/cpu/isa_avx2.o: EXTRA = -mavx2 -mfma -mf16c
$(TSAN_UNITS:%=build/tsan/%.cpp): build/tsan/%.cpp: always
	@$(call write_unit,$(filter $(TSAN_SRC),$(call unit_files,$*)))
TSAN_CXX = $(CXX) $(filter-out -O2,$(CXXFLAGS)) -O1 -g1 -fsanitize=thread -Wno-tsan -Wno-maybe-uninitialized -Wno-uninitialized $(EXTRA) -MMD -MP -c $< -o $@
$(TSAN_UNITS:%=build/tsan/%.o): build/tsan/%.o: build/tsan/%.cpp
	@echo "  CXX $(filter $(TSAN_SRC),$(call unit_files,$*)), for ThreadSanitizer"
	$(Q)$(TSAN_CXX)
build/tsan/%.o: %.cpp
	@mkdir -p $(@D)
	@echo "  CXX $<, for ThreadSanitizer"
	$(Q)$(TSAN_CXX)
-include $(TSAN_OBJ:.o=.d)

neon:
	scripts/check/neon.sh

# The targets of tests/fuzz under clang's libFuzzer, AddressSanitizer and UBSan. Their objects are in build/fuzz.
FUZZ_CXX     ?= $(firstword $(shell command -v clang++ clang++-19 clang++-16 clang++-14))
FUZZ_FLAGS   := -std=c++20 -I. -O1 -g1 -pthread -fsanitize=address,undefined,fuzzer-no-link -fno-sanitize-recover=undefined
FUZZ_TARGETS := $(filter-out main target,$(notdir $(basename $(wildcard tests/fuzz/*.cpp))))
FUZZ_SRC     := $(filter quant/% ggml-like-tensor/% models/% engine/text/% engine/grammar/% engine/sampling/% engine/conversation/%,$(filter-out ggml-like-tensor/cpu/%,$(SOURCES)))
FUZZ_UNITS   := $(call units_of,$(FUZZ_SRC))
# Of the API the files that read a body: the others need a model.
FUZZ_OBJ     := $(patsubst %,build/fuzz/main/api/%.o,api_error fields settings openai_parts anthropic_request changing_lines ollama_request responses_request) $(FUZZ_UNITS:%=build/fuzz/%.o) $(patsubst %.cpp,build/fuzz/%.o,$(filter-out $(IN_UNITS),$(FUZZ_SRC)))
fuzz:
	FUZZ_CXX="$(FUZZ_CXX)" scripts/check/fuzz.sh $(FUZZ_TARGETS)
fuzz-binaries: $(FUZZ_TARGETS:%=build/fuzz/%)
build/fuzz/%: build/fuzz/tests/fuzz/%.o build/fuzz/tests/fuzz/main.o build/fuzz/tests/fuzz/target.o build/fuzz/libchaski.a
	$(Q)$(FUZZ_CXX) $(FUZZ_FLAGS) -fsanitize=fuzzer -o $@ $^ $(LIBS)
build/fuzz/libchaski.a: $(FUZZ_OBJ)
	rm -f $@ && $(AR) rcs $@ $^
$(FUZZ_UNITS:%=build/fuzz/%.cpp): build/fuzz/%.cpp: always
	@$(call write_unit,$(filter $(FUZZ_SRC),$(call unit_files,$*)))
$(FUZZ_UNITS:%=build/fuzz/%.o): build/fuzz/%.o: build/fuzz/%.cpp
	@echo "  CXX $(filter $(FUZZ_SRC),$(call unit_files,$*)), for the fuzzer"
	$(Q)$(FUZZ_CXX) $(FUZZ_FLAGS) -MMD -MP -c $< -o $@
build/fuzz/%.o: %.cpp
	@mkdir -p $(@D)
	@echo "  CXX $<, for the fuzzer"
	$(Q)$(FUZZ_CXX) $(FUZZ_FLAGS) -MMD -MP -c $< -o $@
.SECONDARY: $(patsubst %.cpp,build/fuzz/%.o,$(wildcard tests/fuzz/*.cpp))
-include $(FUZZ_OBJ:.o=.d) $(patsubst %.cpp,build/fuzz/%.d,$(wildcard tests/fuzz/*.cpp))

check: $(BUILD)/libchaski.a
	BUILD=$(BUILD) scripts/check/check.sh

# Each source file by itself, without the precompiled header and the units: shows a missing include. All of them take 30 CPU minutes;
# SINCE=REVISION checks those that differ from it, with their headers. Headers of kernels are no files by themselves.
SYNTAX_SRC := $(filter-out tests/cuda/% tests/cuda_shim/% ggml-like-tensor/cpu/isa_% %/mpi_link.cpp,$(SOURCES))
ifeq ($(origin SINCE),command line)
$(if $(shell git rev-parse -q --verify '$(SINCE)^{commit}'),,$(error SINCE is $(SINCE), expected a revision of this clone))
CHANGED    := $(shell git diff --name-only --diff-filter=d $(SINCE); git ls-files -o --exclude-standard)
SYNTAX_SRC := $(filter $(SYNTAX_SRC),$(CHANGED)) \
  $(filter-out ggml-like-tensor/cpu/% quant/% tests/%,$(filter $(addsuffix /%.h,$(FOLDERS)),$(CHANGED)))
endif
syntax:
	@printf '%s\n' $(SYNTAX_SRC) | xargs -P $$(nproc) -I{} $(CXX) -std=c++20 -I. $(ISA_NAMES) -fsyntax-only -x c++ -include {} /dev/null && echo "syntax: $(words $(SYNTAX_SRC)) files compile by themselves"

format:
	@git ls-files '*.cpp' '*.h' '*.cu' '*.cuh' | xargs clang-format -i && git diff --stat

# For editors and clangd: the compile command of every file, as make -n prints it.
compdb:
	@scripts/package/compdb.py --make "$(MAKE)" > compile_commands.json && echo "compile_commands.json: $$(grep -c '"file"' compile_commands.json) files"

help:
	@echo "make              build/chaski, on all cores (-j1: on one)"
	@echo "make run          the bundled model writes a story"
	@echo "make chat         a conversation with a model of 98 MB, fetched on the first start"
	@echo "make test         all tests; TEST_ARGS='-tc=cli*' some of them"
	@echo "make real         real models (842 MB, fetched on the first start) compared with exact arithmetic"
	@echo "make clients      chaski serve with clients that others wrote (needs their Python packages) and its page in Chromium"
	@echo "make abuse        chaski serve under hostile clients while streams go on"
	@echo "make test-cuda    the CUDA tests on a GPU (make test runs them in a simulator)"
	@echo "make archs        the largest CUDA kernels for sm_80 and sm_120, to see that they compile"
	@echo "make sass         registers and instructions of CUDA kernels, compared with a table (needs cuobjdump and the table's nvcc)"
	@echo "make asan         the tests under AddressSanitizer and UBSan; make asan-parsers: those of code that reads untrusted files"
	@echo "make tsan         code that threads share, under ThreadSanitizer"
	@echo "make faults       failing memory, system calls and limits, kills; FAULTS='limits kills' selects some"
	@echo "make fuzz         every parser under libFuzzer for FUZZ_SECONDS=60 (needs clang)"
	@echo "make neon         the op sweep for AArch64 under qemu"
	@echo "make check        the rules of the tree: includes, symbols, format, file sizes"
	@echo "make syntax       each file compiles by itself (finds missing includes); SINCE=HEAD^ those that changed"
	@echo "make format       clang-format over the tree"
	@echo "make compdb       compile_commands.json, for editors"
	@echo "make install      program, man pages, completions and units for systemd; PREFIX=/usr/local DESTDIR="
	@echo "make deb          a Debian package of them, in build/deb"
	@echo "make dist         a tar, a Debian package and a Python wheel that need only libc, in build/static/dist or, if zig is there, build/static-zig/dist"
	@echo "make try-dist     starts each of these packages in an empty Debian 12 (root, debootstrap); make try-deb: that of make deb"
	@echo "make clean"
	@echo
	@echo "CUDA=1            build CUDA kernels without a GPU; CUDA=0: do not build them although there is a GPU"
	@echo "MPI=1             runs on several machines; without it they are built if OpenMPI's header is there; MPI=0: not built"
	@echo "RELEASE=1         kernels for all CPUs, and for all GPUs from sm_80 on"
	@echo "STATIC=1          link everything except libc and the driver statically"
	@echo "MODE=asan|debug   a separate build in build/asan or build/debug"
	@echo "CXX=...           another compiler (aarch64-linux-gnu-g++: the NEON kernels)"
	@echo "V=1               print the commands"

# WRITER writes the manual: $(BUILD)/chaski, or for a cross build a chaski that runs here.
WRITER   ?= $(BUILD)/chaski
SHARE     = $(DESTDIR)$(PREFIX)/share
define INSTALL
install -D -m 755 $(BUILD)/chaski $(DESTDIR)$(PREFIX)/bin/chaski
scripts/package/install_texts.sh $(WRITER) $(SHARE)
scripts/package/install_units.sh $(PREFIX) '$(DESTDIR)'
endef
install: $(BUILD)/chaski
	$(INSTALL)

# The same under /usr, as a Debian package.
DEB      ?= $(BUILD)/deb
deb: override DESTDIR = $(DEB)/root
deb: override PREFIX = /usr
deb: $(BUILD)/chaski
	rm -rf $(DEB)
	$(INSTALL)
	scripts/package/deb.sh $(DEB)
try-deb: deb
	scripts/package/try_dist.sh $(DEB)

# Packages that need only libc: a static build. If zig is there (pip install ziglang; ZIG_PYTHON names the Python that has it), it builds
# for glibc 2.28, otherwise the program needs the glibc of this machine. nvcc uses g++, and the two cannot be linked together. try-dist
# and try-deb start each package in an empty system (root, debootstrap).
ZIG_PYTHON ?= python3
ZIG       = $(if $(filter 1,$(CUDA)),,$(shell $(ZIG_PYTHON) -m ziglang version >/dev/null 2>&1 && echo CXX=scripts/package/zig_cxx))
.PHONY: dist try-dist try-deb
ifeq ($(STATIC),1)
DIST     := $(BUILD)/dist
dist: override DESTDIR = $(DIST)/root
dist: override PREFIX = /usr
dist: $(BUILD)/chaski
	rm -rf $(DIST)
	$(INSTALL)
	scripts/package/dist.sh $(DIST)
try-dist: dist
	scripts/package/try_dist.sh $(DIST)
else
dist try-dist:
	$(MAKE) STATIC=1 RELEASE=1 CUDA=$(CUDA) ZIG_PYTHON=$(ZIG_PYTHON) $(ZIG) $@
endif

clean:
	rm -rf build

-include $(LIB_OBJ:.o=.d) $(MAIN_OBJ:.o=.d) $(TEST_OBJ:.o=.d) $(SHIM_OBJ:.o=.d) $(SHIM_TEST_KERNELS:.o=.d) $(DEVICE_OBJ:.o=.d) $(BUILD)/standard.h.d $(BUILD)/tests/kit/doctest.h.d
.PHONY: all run chat test real test-cuda fuzz fuzz-binaries asan tsan neon check syntax format compdb help install deb clean always
