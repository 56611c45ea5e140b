// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package deploy_test

import (
	"path"
	"regexp"
	"slices"
	"strings"
	"testing"
)

// TestImagesAreTheOnesThatAreTried: the end-to-end suite puts its images together without a Docker engine; it has to
// put the same programs into them, at the same place, with the same entry point.
func TestImagesAreTheOnesThatAreTried(t *testing.T) {
	tried := read(t, "test/e2e/node/images.sh")
	list := regexp.MustCompile(`(?s)agent_programs\(\) \{.*?for p in ([^;]+); do`).FindStringSubmatch(tried)
	if list == nil {
		t.Fatal("images.sh has no list of the agent's programs")
	}
	for file, want := range map[string][]string{
		"deploy/image/Dockerfile": strings.Fields(list[1]), "deploy/image/Dockerfile.scheduler": {"kerf-scheduler"},
	} {
		text := read(t, file)
		copied := regexp.MustCompile(`(?m)^COPY --from=build (.*) /usr/local/bin/$`).FindStringSubmatch(text)
		entry := regexp.MustCompile(`(?m)^ENTRYPOINT \["(.*)"\]$`).FindStringSubmatch(text)
		if copied == nil || entry == nil {
			t.Fatalf("%s copies nothing to /usr/local/bin, or has no entry point", file)
		}
		var have []string
		for name := range strings.FieldsSeq(copied[1]) {
			have = append(have, strings.TrimPrefix(name, "/src/bin/release/"))
		}
		slices.Sort(have)
		slices.Sort(want)
		if !slices.Equal(have, want) {
			t.Errorf("%s has %q, and the suite's image %q", file, have, want)
		}
		// What is built is what "make reproducible" builds twice, and the programs that are copied are those of it.
		target := map[bool]string{true: "release-agent", false: "release-scheduler"}[strings.HasSuffix(file,
			"/Dockerfile")]
		if !regexp.MustCompile(`(?m)^RUN make ` + target + `\b`).MatchString(text) {
			t.Errorf("%s does not make %s", file, target)
		}
		made := regexp.MustCompile(`(?m)^` + target + `:.*\n((?:\t.*\n)+)`).FindStringSubmatch(read(t, "Makefile"))
		if made == nil {
			t.Fatalf("there is no target %s", target)
		}
		for _, name := range have {
			if !strings.Contains(made[1], strings.TrimSuffix(name, ".so")) {
				t.Errorf("make %s does not say how %s is built", target, name)
			}
		}
		if path.Dir(entry[1]) != "/usr/local/bin" || !slices.Contains(want, path.Base(entry[1])) ||
			!strings.Contains(tried, " "+entry[1]+" ") {
			t.Errorf("%s begins with %s", file, entry[1])
		}
		for _, base := range regexp.MustCompile(`(?m)^ARG BASE=(.*)$`).FindAllStringSubmatch(text, -1) {
			if !strings.HasPrefix(base[1], "gcr.io/distroless/") {
				t.Errorf("%s is made on %s, which may have a shell", file, base[1])
			}
		}
	}
}
