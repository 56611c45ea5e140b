// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"path/filepath"
	"strings"
	"testing"
)

// slurmBase is what a cluster of one node needs in addition to what docs/use/slurm.md has. This machine has cgroup v1
// and v2, which Slurm does not support together, so no plugin uses cgroups.
const slurmBase = `ClusterName=kerf
SlurmctldHost=gpu1
SlurmUser=root
AuthType=auth/munge
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
MpiDefault=none
ReturnToService=2
StateSaveLocation=/var/spool/slurmctld
SlurmdSpoolDir=/var/spool/slurmd
SlurmctldPidFile=/run/slurmctld.pid
SlurmdPidFile=/run/slurmd.pid
`

// slurmPrograms starts the programs of Slurm. The job's program wants 12 GiB.
const slurmPrograms = `mkdir -p /run/munge /var/spool/slurmd /var/spool/slurmctld /var/log/slurm /var/log/kerf
echo CgroupPlugin=cgroup/v1 >/etc/slurm/cgroup.conf
cat >/usr/local/bin/python3 <<'END'
#!/bin/sh
echo shards $SLURM_SHARDS_ON_NODE of GPU $SLURM_JOB_GPUS
gpuload --json --alloc 12GiB --step 256MiB || true
END
chmod +x /usr/local/bin/python3
kerf-agent --audit-dir /var/log/kerf >/var/log/kerf-agent.log 2>&1 &
head -c 1024 /dev/urandom >/etc/munge/munge.key
chmod 0400 /etc/munge/munge.key
chown -R root:root /etc/munge /var/lib/munge /var/log/munge
chmod 0700 /etc/munge /var/lib/munge /var/log/munge
munged --force
slurmctld -L /var/log/slurm/slurmctld.log
slurmd -L /var/log/slurm/slurmd.log
until sinfo -h -o %t | grep -qx idle; do sleep 0.2; done
`

// newSlurm is a site with Slurm, configured as docs/use/slurm.md says. The blocks that follow are returned.
func newSlurm(t *testing.T) (s *site, blocks []block) {
	t.Helper()
	s = newSite(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.try("tail -n 30 /var/log/slurm/*.log /var/log/kerf-agent.log; scontrol show node; squeue").out)
		}
	})
	blocks = page(t, "use/slurm.md")
	for len(blocks) > 0 && (blocks[0].language == "ini" || strings.HasPrefix(blocks[0].text, "install ")) {
		text := blocks[0].text
		if blocks[0].language == "sh" {
			s.repositoryShell(text)
		} else {
			path, _, _ := strings.Cut(strings.TrimPrefix(text, "# "), "\n")
			if filepath.Base(path) == "slurm.conf" {
				text = slurmBase + text
			}
			s.put(path, text)
		}
		blocks = blocks[1:]
	}
	s.shell(slurmPrograms)
	return s, blocks
}

// repositoryShell runs a script in the repository, as a reader of a page does.
func (s *site) repositoryShell(script string) string {
	s.t.Helper()
	root, err := repository()
	if err != nil {
		s.t.Fatal(err)
	}
	return s.shell("cd '" + root + "'\n" + script)
}

// TestNeighborSlurm types the commands of docs/use/slurm.md: a job has its cap on the GPU that Slurm chose, and a line.
func TestNeighborSlurm(t *testing.T) {
	s, blocks := newSlurm(t)
	if len(blocks) != 3 {
		t.Fatalf("the page has %d more blocks", len(blocks))
	}
	s.repositoryShell(strings.Replace(blocks[0].text, "train.out", "/var/tmp/train.out", 1))
	said := s.shell("cat /var/tmp/train.out")
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if !strings.Contains(said, "shards 10 of GPU 0\n") {
		t.Errorf("the job says %s", said)
	}
	wantLoad(t, decode[loaded](t, lines[len(lines)-1]), oom, 10*gib-contextH100-256*mib, 10*gib-contextH100)
	s.shell("kerf status --wait grants=0")
	wantShown(t, s.shell(blocks[1].text), blocks[2].text)
	s.shell("until sinfo -h -o %t | grep -qx idle; do sleep 0.2; done") // The epilog succeeded, too.
	s.shell(epilogTries)
}

// epilogTries runs the epilog by hand while job 7 has a grant: it waits only for the grants of that job.
const epilogTries = `kerf run --name slurm-7-batch --memory 1GiB -- sleep infinity >/dev/null 2>&1 &
kerf status --wait grants=1
SLURM_JOB_ID=77 /etc/slurm/kerf-epilog.sh
if SLURM_JOB_ID=7 timeout 2 /etc/slurm/kerf-epilog.sh; then
	echo "the epilog does not wait for a grant" >&2
	exit 1
fi
kill $!
SLURM_JOB_ID=7 /etc/slurm/kerf-epilog.sh
kerf status --wait grants=0
`

// TestNeighborSlurmDrains: without an agent, the prolog fails. Slurm drains the node, and the job does not start.
func TestNeighborSlurmDrains(t *testing.T) {
	s, blocks := newSlurm(t)
	// The prolog waits a minute for the agent, which this test shortens.
	s.shell(`sed -i 's/--timeout 60s/--timeout 1s/' /etc/slurm/kerf-prolog.sh
kill "$(pidof kerf-agent)"`)
	s.repositoryShell(strings.NewReplacer("train.out", "/var/tmp/train.out", "--wait ", "").Replace(blocks[0].text))
	s.shell("until sinfo -h -o %t | grep -q '^drain'; do sleep 0.2; done\n! grep -q shards /var/tmp/train.out")
}
