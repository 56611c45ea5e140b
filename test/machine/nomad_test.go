// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package machine_test

import (
	"flag"
	"fmt"
	"path/filepath"
	"strings"
	"testing"
)

// nomadProgram is the program of Nomad; without it, its tests are left out.
var nomadProgram = flag.String("nomad", "", "run this program of Nomad, which make e2e-neighbors has built")

// nomadBase is what a cluster of one node needs in addition to what docs/use/nomad.md has. The machine of the test has
// no cloud, and no controllers of cgroups.
const nomadBase = `data_dir             = "/var/lib/nomad"
bind_addr            = "127.0.0.1"
disable_update_check = true
advertise {
  http = "127.0.0.1"
  rpc  = "127.0.0.1"
  serf = "127.0.0.1"
}
server {
  enabled          = true
  bootstrap_expect = 1
}
client {
  enabled           = true
  network_interface = "lo"
  options = {
    "fingerprint.denylist" = "env_aws,env_gce,env_azure,env_digitalocean,consul,vault,cni,bridge"
  }
}
`

// nomadStart starts the agent and Nomad. The job's program wants 21 GiB, and then runs until there is a file.
const nomadStart = `mkdir -p /var/lib/nomad
groupadd kerf
useradd --groups kerf --create-home trainer
cat >/usr/local/bin/python3 <<'END'
#!/bin/sh
echo "$KERF_NOMAD_MEMORY of $KERF_NOMAD_GPU for $(id -un)"
gpuload --json --alloc 21GiB --step 256MiB
until [ -e /var/tmp/finish ]; do sleep 0.2; done
END
chmod +x /usr/local/bin/python3
kerf-agent >/var/log/kerf-agent.log 2>&1 &
kerf status --wait ready --timeout 2m
nomad agent -config /etc/nomad.d >/var/log/nomad.log 2>&1 &
until nomad node status 2>/dev/null | grep -qw ready; do
	kill -0 $!
	sleep 0.2
done
`

// newNomad is a site with Nomad, configured as docs/use/nomad.md says. The blocks that follow are returned.
func newNomad(t *testing.T) (s *site, blocks []block) {
	t.Helper()
	if *nomadProgram == "" {
		t.Skip("runs by make e2e-neighbors")
	}
	program, err := filepath.Abs(*nomadProgram)
	if err != nil {
		t.Fatal(err)
	}
	s = newSite(t)
	t.Cleanup(func() {
		if t.Failed() {
			t.Log(s.try("tail -n 40 /var/log/nomad.log /var/log/kerf-agent.log; nomad job status; kerf status").out)
		}
	})
	blocks = page(t, "use/nomad.md")
	if len(blocks) != 5 || blocks[1].language != "hcl" {
		t.Fatalf("the page has the blocks %q", blocks)
	}
	s.shell("ln -s '" + program + "' /usr/local/bin/nomad")
	s.repositoryShell(blocks[0].text)
	s.put("/etc/nomad.d/base.hcl", nomadBase)
	path, _, _ := strings.Cut(strings.TrimPrefix(blocks[1].text, "# "), "\n")
	s.put(path, blocks[1].text)
	s.shell(nomadStart)
	return s, blocks[2:]
}

// nomadVariant is a script that runs the recipe as another job, with changes of its text. Nomad's exit status is 2 if
// the job stays pending.
func nomadVariant(job string, changes ...string) string {
	script := `s/"train"/"` + job + `"/; s/cpu    = 500/cpu = 50/; s/memory = 1024/memory = 32/`
	for i := 0; i < len(changes); i += 2 {
		script += "; s|" + changes[i] + "|" + changes[i+1] + "|"
	}
	return "sed '" + script + "' deploy/recipes/nomad.hcl | nomad job run -"
}

// nomadLoad waits until the program of a job has allocated. It returns the GPU, and what gpuload reports.
func (s *site) nomadLoad(job, memory string) (gpu string, l loaded) {
	s.t.Helper()
	said := s.shell("until nomad alloc logs -job " + job + " 2>/dev/null | grep -q total_bytes; do sleep 0.2; done\n" +
		"nomad alloc logs -job " + job)
	var user string
	if _, err := fmt.Sscanf(said, memory+" of %s for %s\n", &gpu, &user); err != nil || user != "trainer" {
		s.t.Fatalf("job %s says %s: %v", job, said, err)
	}
	_, report, _ := strings.Cut(said, "\n")
	return gpu, decode[loaded](s.t, report)
}

// TestNeighborNomad types the commands of docs/use/nomad.md: jobs have their caps side by side on one GPU. One that
// does not fit stays pending until there is memory.
func TestNeighborNomad(t *testing.T) {
	s, blocks := newNomad(t)
	s.repositoryShell(blocks[0].text)
	gpu, l := s.nomadLoad("train", "20GiB")
	wantLoad(t, l, oom, 20*gib-contextH100-256*mib, 20*gib-contextH100)
	if l.Total == nil || *l.Total != 20*gib {
		t.Errorf("the program sees %v", l)
	}
	// 79 GiB can be granted: a second job fits next to the first one, and a third one does not.
	onGPU := []string{`"kerf/gpu"`, `"kerf/gpu/` + gpu + `"`}
	s.repositoryShell(nomadVariant("second", append(onGPU, "count = 20", "count = 59")...))
	if other, l := s.nomadLoad("second", "59GiB"); other != gpu || l.Total == nil || *l.Total != 59*gib {
		t.Errorf("the second job is on %s, not on %s: %v", other, gpu, l)
	}
	s.shell("kerf status --wait grants=2")
	s.repositoryShell(nomadVariant("third", append(onGPU, "count = 20", "count = 1")...) + " || [ $? = 2 ]")
	third := strings.NewReplacer("train", "third")
	wantShown(t, s.shell(third.Replace(blocks[1].text)), third.Replace(blocks[2].text))
	s.repositoryShell(nomadVariant("large", "count = 20", "count = 80") + " || [ $? = 2 ]")
	wantShown(t, s.shell("nomad job status large"), "= pending\n\"missing devices\"")

	s.shell("touch /var/tmp/finish")
	if on, _ := s.nomadLoad("third", "1GiB"); on != gpu {
		t.Errorf("the third job is on %s", on)
	}
	s.shell("kerf status --wait grants=0")
	wantShown(t, s.shell("nomad job status large"), "= pending")
}

// TestNeighborNomadStops: the end of a job ends its grant, also if its processes ignore the signal. Without an agent,
// all devices are unhealthy with the reason.
func TestNeighborNomadStops(t *testing.T) {
	s, blocks := newNomad(t)
	s.shell(`sed -i "2i trap '' INT; sleep 1h &" /usr/local/bin/python3`)
	s.repositoryShell(blocks[0].text)
	s.nomadLoad("train", "20GiB")
	s.shell("kerf status --wait grants=1\nnomad job stop train\nkerf status --wait grants=0 --timeout 1m")
	// wait waits for the health of all devices, and for text in its reason.
	const wait = `waits() {
	until nomad node status -self -t '{{range .NodeResources.Devices}}{{range .Instances}}{{.Healthy}} {{.HealthDescription}}
{{end}}{{end}}' >/var/tmp/devices && [ "$(grep -c "^$1 .*$2" /var/tmp/devices)" = 632 ]; do sleep 0.2; done
}
`
	s.shell(wait + `waits true ''
kill "$(pidof kerf-agent)"
waits false kerf-agent`)
	s.repositoryShell(nomadVariant("later") + " || [ $? = 2 ]")
	wantShown(t, s.shell("nomad job status later"), "= pending\n\"missing devices\"")
	s.shell(wait + "kerf-agent >>/var/log/kerf-agent.log 2>&1 &\nwaits true ''")
	s.nomadLoad("later", "20GiB") // The pending job starts by itself.
}
