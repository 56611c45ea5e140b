// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package explain

import (
	"bytes"
	"fmt"
	"os"
	"regexp"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
)

func explainUtilization(args ...string) (out, errOut string, code int) {
	var o, e bytes.Buffer
	a := &command.App{Out: &o, ErrOut: &e, Getenv: func(string) string { return "" }}
	code, _ = a.Execute(append([]string{"suggest", "gpu-memory-utilization"}, args...), Commands)
	return o.String(), e.String(), code
}

func TestExplainUtilization(t *testing.T) {
	for _, tt := range []struct {
		args, out, says string
	}{
		{"40GiB --visible-memory 40GiB", "0.90\n",
			"the container sees no more than its grant (40GiB of 40GiB): 0.90 of that is 0.90"},
		{"40GiB --visible-memory 39.5GiB", "0.90\n", "sees no more than its grant"},
		{"40GiB --visible-memory 80GiB", "0.45\n",
			"the container sees 80GiB and may use 40GiB: 0.90 x 40GiB / 80GiB = 0.45"},
		{"10GiB --visible-memory 80GiB", "0.112\n", "= 0.112"}, // 0.1125
		{"40GiB --visible-memory 81559MiB", "0.451\n", "= 0.451"},
		{"48GiB --gpus 2 --visible-memory 81559MiB", "0.271\n", "may use 24GiB"},
		{"40GiB --visible-memory 80GiB --target-percent 100", "0.50\n", "1.00 x 40GiB / 80GiB = 0.50"},
		{"80GiB --visible-memory 80GiB --target-percent 100", "1.00\n", "1.00 of that is 1.00"},
		{"1GiB --visible-memory 640GiB", "0.001\n", "= 0.001"},
		{"16777215TiB --visible-memory 16777215TiB --target-percent 100", "1.00\n", ""}, // nothing leaves 64 bits
		{"40GiB --visible-memory 40GiB --server sglang", "0.75\n",
			"with 6GiB for activations: (0.90 x 40GiB - 6GiB) / 40GiB = 0.75"},
		{"40GiB --visible-memory 80GiB --server sglang --activation-memory 4GiB", "0.40\n", "/ 80GiB = 0.40"},
		{"40GiB --visible-memory 40GiB --server trtllm --model-memory 16GiB", "0.833\n",
			"the model takes 16GiB: (0.90 x 40GiB - 16GiB) / (40GiB - 16GiB) = 0.833"},
		{"40GiB --visible-memory 80GiB --server trtllm --model-memory 16GiB", "0.312\n", "(80GiB - 16GiB) = 0.312"},
		{"80GiB --gpus 2 --visible-memory 80GiB --server trtllm --model-memory 16GiB", "0.312\n", "may use 40GiB"},
	} {
		out, said, code := explainUtilization(strings.Fields(tt.args)...)
		if code != command.ExitOK || out != tt.out || !strings.Contains(said, tt.says) {
			t.Errorf("%s: status %d, %q, %q", tt.args, code, out, said)
		}
	}
	for _, tt := range []struct{ args, says string }{
		{"", "arg"},
		{"40GiB", "--visible-memory is missing; write what nvidia-smi shows"},
		{"40 --visible-memory 80GiB",
			`MEMORY "40" is less than the 1MiB of the smallest grant; write it with its unit`},
		{"0GiB --visible-memory 80GiB", "MEMORY"},
		{"40GiB --visible-memory 80", `--visible-memory "80" is less than the 1MiB`},
		{"40GiB --visible-memory 80GiB --gpus 0", "--gpus"},
		{"40GiB --visible-memory 80GiB --gpus 65", "--gpus"},
		{"40GiB --visible-memory 80GiB --gpus 3", "does not divide evenly by 3 GPUs"},
		{"40GiB --visible-memory 80GiB --target-percent 0", "--target-percent"},
		{"40GiB --visible-memory 80GiB --target-percent 101", "--target-percent"},
		{"1MiB --visible-memory 80GiB", "less than a thousandth"},
		{"40GiB --visible-memory 80GiB --server tgi", "write vllm, trtllm or sglang"},
		{"40GiB --visible-memory 80GiB --server trtllm", "--model-memory"},
		{"40GiB --visible-memory 80GiB --model-memory 16GiB", "is for --server trtllm"},
		{"40GiB --visible-memory 40GiB --server trtllm --model-memory 40GiB", "is not less than the 40GiB"},
		{"40GiB --visible-memory 80GiB --server trtllm --model-memory 37GiB",
			"90 percent of 40GiB is not more than 37GiB"},
		{"4GiB --visible-memory 80GiB --server sglang", "leaves no memory for the cache"},
	} {
		out, said, code := explainUtilization(strings.Fields(tt.args)...)
		if code != command.ExitUsage || out != "" || !strings.Contains(said, tt.says) {
			t.Errorf("%q: status %d, %q, %q", tt.args, code, out, said)
		}
	}
}

func TestExplainUtilizationForScripts(t *testing.T) {
	out, _, code := explainUtilization("48GiB", "--gpus", "2", "--visible-memory", "80GiB", "-o", "json")
	const want = "{\n  \"utilization\": 0.27,\n  \"server\": \"vllm\",\n" +
		"  \"grantedBytes\": 25769803776,\n  \"visibleBytes\": 85899345920,\n  " +
		"\"targetPercent\": 90\n}\n"
	if code != command.ExitOK || out != want {
		t.Errorf("status %d: %s, want %s", code, out, want)
	}
	if out, _, code := explainUtilization("48GiB", "--visible-memory", "80GiB", "-o", "yaml"); code != command.ExitOK ||
		!strings.HasPrefix(out, "utilization: 0.54\n") {
		t.Errorf("status %d: %s", code, out)
	}
	if _, errOut, code := explainUtilization("48GiB", "--visible-memory", "80GiB", "-o",
		"csv"); code != command.ExitUsage ||
		!strings.Contains(errOut, "is not a form of output") {
		t.Errorf("status %d: %s", code, errOut)
	}
}

// The part is never more than what was asked to be used of the grant, and less by no more than a thousandth of what is
// seen.
func TestExplainUtilizationRounds(t *testing.T) {
	for grant := 1; grant <= 80; grant++ {
		for use := 10; use <= 100; use += 9 {
			granted, seen := uint64(grant)<<30, uint64(80)<<30-12345
			u, err := utilizationOf(fmt.Sprintf("%dGiB", grant), utilizationFlags{seen: fmt.Sprintf("%dB", seen),
				server: "vllm", gpus: 1, use: use})
			if err != nil {
				t.Fatal(err)
			}
			exact := float64(use) / 100 * float64(min(granted, seen)) / float64(seen)
			if got := float64(u.thousandths) / 1000; got > exact || got < exact-0.0011 {
				t.Errorf("%d GiB, %d %%: %v of %v", grant, use, got, exact)
			}
		}
	}
}

// What the recipe and its page write is what the command says.
func TestRecipesUseTheCommand(t *testing.T) {
	typed := regexp.MustCompile(`kerf suggest gpu-memory-utilization ((\d+)GiB .*)`)
	written := regexp.MustCompile(`--(?:gpu-memory-utilization|mem-fraction-static|` +
		`kv_cache_free_gpu_memory_fraction)=([0-9.]+)`)
	limit := regexp.MustCompile(`kerf.dev/gpu-memory-gib: "(\d+)"`)
	for file, n := range map[string]int{"kserve-vllm.yaml": 1, "two-models.yaml": 2, "vllm.yaml": 2,
		"sglang.yaml": 2, "trtllm.yaml": 2} {
		text, err := os.ReadFile("../../../deploy/recipes/" + file)
		if err != nil {
			t.Fatal(err)
		}
		recipe := string(text)
		commands, parts, limits := typed.FindAllStringSubmatch(recipe, -1), written.FindAllStringSubmatch(recipe, -1),
			limit.FindAllStringSubmatch(recipe, -1)
		if len(commands) != n || len(parts) != n || len(limits) != n {
			t.Fatalf("%s has %q, %q and %q", file, commands, parts, limits)
		}
		for i, c := range commands {
			if out, _, code := explainUtilization(strings.Fields(c[1])...); code != command.ExitOK ||
				strings.TrimSpace(out) != parts[i][1] || c[2] != limits[i][1] {
				t.Errorf("%s: %s: %q with status %d; the file has %s and %s GiB", file, c[0], out, code, parts[i][1],
					limits[i][1])
			}
		}
	}
	page, err := os.ReadFile("../../../docs/use/notebooks-and-inference.md")
	if err != nil {
		t.Fatal(err)
	}
	row := func(head string) []string {
		t.Helper()
		for line := range strings.Lines(string(page)) {
			if strings.HasPrefix(line, "| "+head+" |") {
				return strings.Split(strings.Trim(strings.TrimSpace(line), "| "), " | ")[1:]
			}
		}
		t.Fatalf("docs/use/notebooks-and-inference.md has no row %q", head)
		return nil
	}
	grants, parts := row("grant"), row("`--gpu-memory-utilization`")
	if len(grants) < 5 || len(grants) != len(parts) {
		t.Fatalf("%q and %q", grants, parts)
	}
	for i, g := range grants {
		if out, _, _ := explainUtilization(strings.ReplaceAll(g, " ", ""), "--visible-memory",
			"80GiB"); strings.TrimSpace(out) != parts[i] {
			t.Errorf("%s of 80 GiB: the page says %s, the command %q", g, parts[i], out)
		}
	}
}
