// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package cli

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/kerf-gpu/kerf/internal/cli/command"
	"github.com/kerf-gpu/kerf/internal/cli/job"
	"github.com/kerf-gpu/kerf/internal/nodeclient/fakenode"
	"github.com/kerf-gpu/kerf/test/clitest"
)

// misused is the exit status of a command line with wrong flags. That of kerf run differs, as the program's follows.
func misused(line string) int {
	if strings.HasPrefix(line, "run ") {
		return job.ExitRefused
	}
	return command.ExitUsage
}

// A flag that would have no effect next to the others, or on a machine, is an error of usage that names the flag.
func TestFlagsWithoutEffectOnAMachine(t *testing.T) {
	const suggest = "suggest gpu-memory-utilization 10GiB --visible-memory 20GiB "
	dir := t.TempDir()
	(&fakenode.Server{}).Start(t, dir).Show(clitest.Node(true, "train"))
	file := filepath.Join(dir, "pods.yaml")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	for line, flag := range map[string]string{
		"status --timeout 5s":                                                    "--timeout",
		"status --wait ready --watch":                                            "--wait",
		"doctor --bundle b.tar.gz -o json":                                       "--output",
		"doctor --node n --bundle b.tar.gz":                                      "--bundle",
		"doctor --node n --runtime-socket /s":                                    "--runtime-socket",
		"doctor --no-job":                                                        "--no-job",
		"doctor --node n --image i --no-job":                                     "--image",
		"resize train --memory 5GiB --timeout 5s":                                "--timeout",
		"run --env A=b --memory 1GiB -- true":                                    "--env",
		"run --volume /a:/b --memory 1GiB -- true":                               "--volume",
		"run --workdir /a --memory 1GiB -- true":                                 "--workdir",
		"run --pull always --memory 1GiB -- true":                                "--pull",
		"run --containerd-socket /s --memory 1GiB -- true":                       "--containerd-socket",
		"run --detach --memory 1GiB -- true":                                     "--detach",
		"run --keep --memory 1GiB -- true":                                       "--keep",
		"run --scheduler s --memory 1GiB -- true":                                "--scheduler",
		"run --service-account s --memory 1GiB -- true":                          "--service-account",
		"simulate --defrag-cost 5":                                               "--defrag-cost",
		suggest + "--activation-memory 1GiB":                                     "--activation-memory",
		suggest + "--activation-memory 6GiB":                                     "--activation-memory",
		suggest + "--model-memory 1GiB":                                          "--model-memory",
		suggest + "--server trtllm --model-memory 1GiB --activation-memory 1GiB": "--activation-memory",
		suggest + "--server sglang --model-memory 1GiB":                          "--model-memory",
		"translate --gpu-is-replica " + file:                                     "--gpu-is-replica",
		"config migrate --write -":                                               "--write",
	} {
		want := misused(line)
		r := clitest.Kerf(t, func(c *exec.Cmd) { c.Env = append(c.Env, "KERF_DIR="+dir) }, strings.Split(line, " ")...)
		if r.Code != want || !strings.Contains(r.ErrOut, flag) {
			t.Errorf("%s: status %d, want %d and %s: %s", line, r.Code, want, flag, r.ErrOut)
		}
	}
}

// The same with the flags of commands for a cluster.
func TestFlagsWithoutEffectOnACluster(t *testing.T) {
	for line, flag := range map[string]string{
		"status --wait ready":                                "--wait",
		"status --timeout 5s":                                "--wait",
		"cordon gpu-1/0 --timeout 5s":                        "--timeout",
		"doctor --runtime-socket /s":                         "--runtime-socket",
		"doctor --bundle b.tar.gz -o json":                   "--output",
		"doctor --image i":                                   "--image",
		"doctor -n team":                                     "--namespace",
		"doctor --node n -n team --no-job":                   "--namespace",
		"run --status-file f --memory 1GiB --image i":        "--status-file",
		"run --memory 1GiB --containerd-socket /s --image i": "--containerd-socket",
		"run --memory 1GiB --detach --keep --image i":        "--keep",
		"top --once --grant a":                               "--grant",
		"top --once --gpu-uuid GPU-1":                        "--gpu-uuid",
		"defrag plan --any-pod --priority-classes a":         "--priority-classes",
		"simulate --from-cluster --workload f":               "--workload",
		"simulate --from-cluster --seeds 1-5":                "--seeds",
		"config validate f --context x":                      "--context",
	} {
		want := misused(line)
		f := clitest.StartCluster(t, Commands)
		if _, said, code := f.Call(strings.Split(line, " ")...); code != want ||
			!strings.Contains(said, flag) {
			t.Errorf("%s: status %d, want %d and %s: %s", line, code, want, flag, said)
		}
	}
}
