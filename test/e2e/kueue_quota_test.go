// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"testing"

	appsv1 "k8s.io/api/apps/v1"
	batchv1 "k8s.io/api/batch/v1"
	corev1 "k8s.io/api/core/v1"
	"k8s.io/apimachinery/pkg/api/resource"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

// credits is the quota of the recipe.
const credits = 160

// charged is a Job that asks for GPUs in one of the ways that there are, and what it costs.
type charged struct {
	podSpec
	// pods run at once; 0 is one.
	pods    int32
	credits int
}

// priced is a Job of one container.
func priced(cost int, name string, limits map[string]string) charged {
	return charged{podSpec: one(name, limits, hold), credits: cost}
}

// ways are all kinds of asking, each more than two credits; what they cost is reckoned here and not read from the
// recipe.
func ways() []charged {
	over := priced(4, "over-two", gibs(4))
	over.annotations = map[string]string{"kerf.dev/gpu-count": "2"}
	parallel := priced(3, "parallel", gibs(1))
	parallel.pods = 3
	all := []charged{
		priced(3, "gib", gibs(3)),
		priced(3, "percent", percent(3)), // 2.4, and rounded up
		priced(80, "all-percent", percent(100)),
		priced(3, "both", both(gibs(1), percent(2))), // 1 and 1.6
		priced(80, "whole", wholeGPUs(1)),
		over, parallel,
		{podSpec: podSpec{name: "neighbor", containers: []container{
			{name: "a", run: hold, limits: gibs(1)}, {name: "b", run: hold, limits: gibs(2)},
			{name: "c", run: hold, limits: percent(5)},
		}}, credits: 7},
		// An init container hands over what it has: the larger of both counts. A sidecar stays.
		{podSpec: podSpec{
			name: "first", init: []container{{name: "init", run: "true", limits: gibs(5)}},
			containers: []container{{run: hold, limits: gibs(1)}},
		}, credits: 5},
		{podSpec: podSpec{
			name: "sidecar", init: []container{{name: "side", run: hold, limits: gibs(2), sidecar: true}},
			containers: []container{{run: hold, limits: gibs(2)}},
		}, credits: 4},
	}
	for profile, price := range map[string]int{"1g.10gb": 10, "1g.10gb.me": 10, "1g.20gb": 20, "2g.20gb": 20,
		"3g.40gb": 40, "4g.40gb": 40, "7g.80gb": 80} {
		all = append(all, priced(price, "mig-"+strings.ReplaceAll(profile, ".", "-"), instance(profile)))
	}
	slices.SortFunc(all, func(a, b charged) int { return strings.Compare(a.name, b.name) })
	return all
}

// object is the recipe's Job with what is asked for; it wants less of the node's CPUs.
func (q *quota) object(a charged) *batchv1.Job {
	job, o := q.job.DeepCopy(), a.podSpec.object(q.namespace)
	job.ObjectMeta = metav1.ObjectMeta{Name: a.name, Namespace: q.namespace, Labels: job.Labels}
	if a.pods > 0 {
		job.Spec.Parallelism, job.Spec.Completions = &a.pods, &a.pods
	}
	t := &job.Spec.Template
	o.Spec.SchedulerName = t.Spec.SchedulerName
	t.Annotations, t.Spec = a.annotations, o.Spec
	for i := range t.Spec.Containers {
		t.Spec.Containers[i].Resources.Requests = corev1.ResourceList{"cpu": resource.MustParse("10m"),
			"memory": resource.MustParse("16Mi")}
	}
	return job
}

// submit creates the Job and does not wait.
func (q *quota) submit(a charged) *batchv1.Job {
	q.Helper()
	made, err := q.client.BatchV1().Jobs(q.namespace).Create(background(), q.object(a), metav1.CreateOptions{})
	if err != nil {
		q.Fatal(err)
	}
	return made
}

// end deletes a Job with its pods, and waits for these.
func (q *quota) end(name string) {
	q.Helper()
	pods := metav1.DeletePropagationBackground
	if err := q.client.BatchV1().Jobs(q.namespace).Delete(background(), name,
		metav1.DeleteOptions{PropagationPolicy: &pods}); err != nil {
		q.Fatal(err)
	}
	eventually(q, "end of Job "+name, func() error {
		pods, err := q.podsOf(name)
		if err == nil && len(pods) > 0 {
			err = errors.New(describe(&pods[0]))
		}
		return err
	})
}

func (q *quota) podsOf(job string) ([]corev1.Pod, error) {
	list, err := q.client.CoreV1().Pods(q.namespace).List(background(),
		metav1.ListOptions{LabelSelector: batchv1.JobNameLabel + "=" + job})
	if err != nil {
		return nil, err
	}
	for _, o := range list.Items {
		q.known(&o)
	}
	return list.Items, nil
}

// runs waits until a Job's one pod runs.
func (q *quota) runs(name string) *pod {
	q.Helper()
	var p *pod
	eventually(q, "pod of Job "+name, func() error {
		pods, err := q.podsOf(name)
		if err != nil || len(pods) != 1 {
			return fmt.Errorf("%d pods: %w; %s", len(pods), errors.Join(err), q.why("Job", name))
		}
		p = q.known(&pods[0])
		return nil
	})
	p.running()
	return p
}

// workload is what Kueue makes of a Job or pod.
type workload struct {
	Metadata metav1.ObjectMeta `json:"metadata"`
	Status   struct {
		Conditions []metav1.Condition `json:"conditions"`
	} `json:"status"`
}

// why is what Kueue says of a Job or pod that waits.
func (q *quota) why(kind, name string) string {
	var list struct{ Items []workload }
	r := q.kubectl("", "get", workloads, "-n", q.namespace, "-o", "json")
	if err := json.Unmarshal([]byte(r.out), &list); err != nil {
		return r.String()
	}
	for _, w := range list.Items {
		owned := slices.ContainsFunc(w.Metadata.OwnerReferences,
			func(o metav1.OwnerReference) bool { return o.Kind == kind && o.Name == name })
		for _, c := range w.Status.Conditions {
			if owned && c.Type == "QuotaReserved" {
				return fmt.Sprintf("quota %s: %s", c.Status, c.Message)
			}
		}
	}
	return "nothing is said of it"
}

// waits until Kueue says why, in these words.
func (q *quota) waits(kind, name, words string) {
	q.Helper()
	eventually(q, fmt.Sprintf("%q said of %s %s", words, kind, name), func() error {
		if said := q.why(kind, name); !strings.HasPrefix(said, "quota False: ") || !strings.Contains(said, words) {
			return errors.New(said)
		}
		return nil
	})
}

// short is what Kueue says of who lacks so many credits.
func short(n int) string {
	return fmt.Sprintf("insufficient unused quota for kerf.dev/credits in flavor kerf-gpus, %d more needed", n)
}

// spent waits until the ClusterQueue has charged so much.
func (q *quota) spent(n int) {
	q.Helper()
	eventually(q, fmt.Sprintf("%d credits spent", n), func() error {
		r := q.kubectl("", "get", "clusterqueue", "gpus", "-o",
			`jsonpath={.status.flavorsUsage[0].resources[?(@.name=="kerf.dev/credits")].total}`)
		if r.err != nil || r.out != strconv.Itoa(n) {
			return fmt.Errorf("it has %v", r)
		}
		return nil
	})
}

// The recipe with a real Kueue: what fits into the quota runs, each kind held by Kerf as it is without Kueue; what does
// not fit waits, whichever way it asks, and knows by how much; and runs when there is room.
func TestKueue(t *testing.T) {
	if !*runKueue {
		t.Skip("Kueue is not built for the suite: run it with make e2e-kueue")
	}
	e := withScheduler(t)
	e.cutNode()
	q := e.withQuota()
	for _, a := range []charged{
		priced(80, "a-whole", wholeGPUs(1)), priced(40, "b-mig", instance("3g.40gb")), priced(30, "c-gib", gibs(30)),
		priced(8, "d-percent", percent(10)),
	} {
		if job := q.submit(a); !*job.Spec.Suspend {
			t.Errorf("Job %s is not suspended", a.name)
		}
	}
	gpu := e.node.gpus(t)[0]
	e.wantHeld(q.runs("a-whole"), "main", want{gpus: 1, memory: gpu.shareOf(100), percent: 100, level: "exclusive"})
	e.wantHeld(q.runs("c-gib"), "main", share(30*gib, 0))
	e.wantHeld(q.runs("d-percent"), "main", share(gpu.shareOf(10), 10))
	cut := q.runs("b-mig")
	e.visible(cut)
	if g := e.grantOf(cut, "main"); g.Level != "hardware" || len(g.Shares) != 1 ||
		g.Shares[0].Profile != "3g.40gb" {
		t.Errorf("the MIG instance: %+v", g)
	}
	q.spent(credits - 2)

	q.noWayAround(2)
	q.notCharged()
	q.withoutQueue(2)
	q.submit(priced(80, "next", wholeGPUs(1)))
	q.waits("Job", "next", short(78))
	q.end("a-whole")
	e.wantHeld(q.runs("next"), "main", want{gpus: 1, memory: gpu.shareOf(100), percent: 100, level: "exclusive"})
	for _, name := range []string{"next", "b-mig", "c-gib", "d-percent"} {
		q.end(name)
	}
	q.spent(0)
	q.atEachRest(10)
}

// noWayAround asks in all ways while so many credits are left: each waits for exactly what it lacks.
func (q *quota) noWayAround(left int) {
	q.Helper()
	all := ways()
	for _, a := range all {
		q.submit(a)
	}
	for _, a := range all {
		q.waits("Job", a.name, short(a.credits-left))
	}
	much := priced(240, "too-much", wholeGPUs(3))
	q.submit(much)
	q.waits("Job", much.name, fmt.Sprintf("(240) > maximum capacity (%d)", credits))
	for _, a := range append(all, much) {
		if pods, err := q.podsOf(a.name); err != nil || len(pods) > 0 {
			q.Errorf("Job %s has %d pods: %v", a.name, len(pods), err)
		}
		q.end(a.name)
	}
}

// notCharged tries what Kueue cannot reckon with: without a price it waits, and what gets its amounts after it was
// counted is refused.
func (q *quota) notCharged() {
	q.Helper()
	for name, unpriced := range map[string]string{"mig-without-price": "kerf.dev/mig-2g.10gb",
		"of-another-plugin": "nvidia.com/gpu"} {
		q.submit(priced(0, name, map[string]string{unpriced: "1"}))
		q.waits("Job", name, "resource "+unpriced+" unavailable in ClusterQueue")
		q.end(name)
	}
	const refusal, larger = "a profile's amounts are not charged in this namespace", "larger than what is charged"
	dry := metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}
	for _, a := range []struct {
		limits    map[string]string
		key, text string
		refusal   string
	}{
		{nil, "kerf.dev/profile", "e2e-small", refusal},
		{percent(1), "kerf.dev/profile", "e2e-small", refusal},
		{gibs(1), "kerf.dev/min-enforcement", "hardware", larger},
		{gibs(1), "min-enforcement.kerf.dev/main", "hardware", larger},
	} {
		job := priced(0, "not-charged", a.limits)
		job.annotations = map[string]string{a.key: a.text}
		if _, err := q.client.BatchV1().Jobs(q.namespace).Create(background(), q.object(job), dry); err == nil ||
			!strings.Contains(err.Error(), a.refusal) {
			q.Errorf("a Job with %v and %s: %s: %v", a.limits, a.key, a.text, err)
		}
	}
	little := one("profile", percent(1), hold)
	little.annotations = map[string]string{"profile.kerf.dev/main": "e2e-small"}
	if said := q.refused(little); !strings.Contains(said, refusal) {
		q.Errorf("a pod with a profile: %s", said)
	}
	owner := q.submit(priced(240, "owner", wholeGPUs(3)))
	owned := one("owned", gibs(3), hold)
	owned.edit = func(p *corev1.Pod) {
		p.OwnerReferences = []metav1.OwnerReference{*metav1.NewControllerRef(owner,
			batchv1.SchemeGroupVersion.WithKind("Job"))}
	}
	if said := q.refused(owned); !strings.Contains(said, "only controllers may") {
		q.Errorf("a pod in the name of a Job: %s", said)
	}
	q.end("owner")
	label := func(value string) {
		if r := q.kubectl("", "label", "--overwrite", "namespace", q.namespace, "kerf.dev/translate"+
			value); r.err != nil {
			q.Fatal(r)
		}
	}
	label("=true")
	eventually(q, "a refusal where pods are translated", func() error {
		_, err := q.client.BatchV1().Jobs(q.namespace).Create(background(), q.object(priced(0, "translated", nil)), dry)
		if err == nil || !strings.Contains(err.Error(), "what is translated is not charged") {
			return fmt.Errorf("it is answered %w", errors.Join(err))
		}
		return nil
	})
	label("-")
	eventually(q, "an end of that", func() error {
		_, err := q.client.BatchV1().Jobs(q.namespace).Create(background(), q.object(priced(0, "translated", nil)), dry)
		return err
	})
}

// withoutQueue leaves out the Job, or the queue, or both. Otherwise no Job waits.
func (q *quota) withoutQueue(left int) {
	q.Helper()
	a := priced(3, "no-queue", gibs(3))
	job := q.object(a)
	job.Labels, job.Spec.Suspend = nil, new(bool)
	made, err := q.client.BatchV1().Jobs(q.namespace).Create(background(), job, metav1.CreateOptions{})
	if err != nil {
		q.Fatal(err)
	}
	if !*made.Spec.Suspend {
		q.Error("a Job without a queue begins at once")
	}
	for _, labels := range []map[string]string{nil, q.job.Labels} {
		spec := one("pod-"+strconv.Itoa(len(labels)), gibs(3), hold)
		spec.edit = func(p *corev1.Pod) { p.Labels, p.Spec.SchedulerName = labels, schedulerName }
		p := q.create(spec)
		if gates := p.get().Spec.SchedulingGates; len(gates) == 0 {
			q.Errorf("pod %s has no scheduling gate", p.name)
		}
	}
	q.ofDeployment(gibs(3))
	q.waits("Pod", "pod-1", short(3-left))
	for _, p := range [][3]string{
		{"pod/pod-0", `{"metadata":{"labels":{"kueue.x-k8s.io/managed":null}},"spec":{"schedulingGates":null}}`,
			"only Kueue takes off its gate"},
		{"pod/pod-1", `{"spec":{"schedulingGates":[]}}`, "only Kueue takes off its gate"},
		{"pod/pod-1", `{"metadata":{"annotations":{"kerf.dev/min-enforcement":"hardware"}}}`,
			"larger than what is charged"},
		{"job/no-queue", `{"spec":{"template":{"metadata":{"annotations":{"kerf.dev/profile":"e2e-small"}}}}}`,
			"profile's amounts are not charged"},
		{"job/no-queue", `{"spec":{"suspend":false}}`, "only Kueue lets it begin"},
	} {
		if r := q.kubectl("", "patch", p[0], "-n", q.namespace, "--type=merge", "-p", p[1]); r.err == nil ||
			!strings.Contains(r.errOut, p[2]) {
			q.Errorf("%s changed to %s: %v, want %q", p[0], p[1], r, p[2])
		}
	}
	other := q.otherNamespace()
	free := one("free", gibs(3), hold)
	free.namespace = other
	if o, err := q.client.CoreV1().Pods(other).Create(background(), free.object(other),
		metav1.CreateOptions{DryRun: []string{metav1.DryRunAll}}); err != nil || len(o.Spec.SchedulingGates) > 0 {
		q.Errorf("a pod of another namespace: %v, gates %v", err, o.Spec.SchedulingGates)
	}
	q.end("d-percent")
	p := q.known(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-1", Namespace: q.namespace}})
	p.running()
	q.wantHeld(p, "main", share(3*gib, 0))
	p.delete()
	q.known(&corev1.Pod{ObjectMeta: metav1.ObjectMeta{Name: "pod-0", Namespace: q.namespace}}).delete()
	q.submit(priced(8, "d-percent", percent(10)))
	q.runs("d-percent")
	q.spent(credits - left)
	q.end("no-queue")
}

// ofDeployment looks at a Deployment's pod, which is held back as one by itself is.
func (q *quota) ofDeployment(limits map[string]string) {
	q.Helper()
	spec, labels := one("deployed", limits, hold), map[string]string{"of": "deployment"}
	spec.restart = corev1.RestartPolicyAlways
	deployments := q.client.AppsV1().Deployments(q.namespace)
	if _, err := deployments.Create(background(), &appsv1.Deployment{
		ObjectMeta: metav1.ObjectMeta{Name: spec.name},
		Spec: appsv1.DeploymentSpec{
			Selector: &metav1.LabelSelector{MatchLabels: labels},
			Template: corev1.PodTemplateSpec{ObjectMeta: metav1.ObjectMeta{Labels: labels},
				Spec: spec.object(q.namespace).Spec},
		},
	}, metav1.CreateOptions{}); err != nil {
		q.Fatal(err)
	}
	var p *pod
	eventually(q, "the Deployment's pod", func() error {
		list, err := q.client.CoreV1().Pods(q.namespace).List(background(),
			metav1.ListOptions{LabelSelector: "of=deployment"})
		if err != nil || len(list.Items) != 1 {
			return fmt.Errorf("%d pods: %w", len(list.Items), errors.Join(err))
		}
		p = q.known(&list.Items[0])
		return nil
	})
	if gates := p.get().Spec.SchedulingGates; len(gates) == 0 {
		q.Errorf("the Deployment's pod has no scheduling gate: %s", describe(p.get()))
	}
	if err := deployments.Delete(background(), spec.name,
		metav1.DeleteOptions{PropagationPolicy: new(metav1.DeletePropagationBackground)}); err != nil {
		q.Fatal(err)
	}
	eventually(q, "its end", p.goneError)
}

// atEachRest submits so many Jobs at random, and ends one admitted Job after the other. It checks each rest: the
// admitted Jobs cost no more than the quota, Kerf has granted no more than that, and no waiting Job would fit.
func (q *quota) atEachRest(jobs int) {
	q.Helper()
	random, all, price := rand.New(rand.NewPCG(1, 2)), ways(), map[string]int{}
	for i := range jobs {
		a := all[random.IntN(len(all))]
		a.name += "-" + strconv.Itoa(i)
		price[a.name] = a.credits
		q.submit(a)
	}
	for len(price) > 0 {
		var admitted []string
		eventually(q, "a rest", func() (err error) {
			admitted, err = q.rest(price)
			return err
		})
		ended := admitted[random.IntN(len(admitted))]
		q.end(ended)
		delete(price, ended)
	}
}

// rest returns the Jobs that are admitted, sorted, unless a waiting Job would fit.
func (q *quota) rest(price map[string]int) (admitted []string, err error) {
	list, err := q.client.BatchV1().Jobs(q.namespace).List(background(), metav1.ListOptions{})
	if err != nil {
		return nil, err
	}
	spent, least := 0, credits+1
	for _, job := range list.Items {
		cost, ours := price[job.Name]
		switch {
		case !ours: // it was deleted
		case *job.Spec.Suspend:
			least = min(least, cost)
		default:
			spent += cost
			admitted = append(admitted, job.Name)
		}
	}
	if spent > credits {
		return nil, final("%d credits are spent by %q", spent, admitted)
	}
	if spent+least <= credits || len(admitted) == 0 {
		return nil, fmt.Errorf("a Job waits that would fit: %d are spent by %q, and %d wanted", spent, admitted,
			least)
	}
	s, err := q.status()
	if err != nil {
		return nil, err
	}
	var given uint64
	for _, g := range s.Grants {
		if g.Namespace == q.namespace {
			given += g.Memory
		}
	}
	if given > credits*gib { // those of pods that have just ended are let go of soon
		return nil, fmt.Errorf("%d bytes are granted", given)
	}
	slices.Sort(admitted)
	return admitted, nil
}
