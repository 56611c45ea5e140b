// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package e2e

import (
	"bufio"
	"bytes"
	"context"
	"crypto/ecdsa"
	"crypto/elliptic"
	"crypto/rand"
	"crypto/tls"
	"crypto/x509"
	"encoding/pem"
	"fmt"
	"io"
	"math/big"
	"net/http"
	"net/http/cookiejar"
	"net/url"
	"os/exec"
	"strings"
	"testing"
	"time"

	authenticationv1 "k8s.io/api/authentication/v1"
	corev1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
)

const consoleName = "kerf-console"

// The chart's console serves the users of the cluster, who log in with their tokens. Each sees the nodes, and the pods
// of the namespaces in which RBAC lets it list them. A token without rights gets nothing.
func TestConsole(t *testing.T) {
	e := beginWithAgent(t)
	p := e.create(one("mine", gibs(4), hold))
	p.running()
	other := e.otherNamespace()
	at, roots := e.startConsole()

	admin := e.consoleUser(at, roots, "admin", "clusterrolebinding", "--clusterrole=cluster-admin")
	eventually(e, "the pod in the console of an administrator", func() error {
		return wants(admin.snapshot(), `"name":"mine"`, `"node/`+e.node.env["NODE_NAME"]+`"`)
	})
	limited := e.consoleUser(at, roots, "limited", "clusterrolebinding", "--clusterrole=kerf-viewer")
	if r := e.kubectl("", "-n", other, "create", "rolebinding", "limited", "--clusterrole=view",
		"--serviceaccount="+e.namespace+":limited"); r.err != nil {
		t.Fatal(r)
	}
	seen := limited.snapshot()
	if err := wants(seen, `"node/`+e.node.env["NODE_NAME"]+`"`); err != nil {
		t.Error(err)
	}
	if strings.Contains(seen, e.namespace) || strings.Contains(seen, `"name":"mine"`) {
		t.Errorf("a user of another namespace sees %.600s", seen)
	}
	if s := e.consoleLogin(at, roots, e.token("default")); s.code != http.StatusForbidden {
		t.Errorf("a user without rights gets %d", s.code)
	}
}

// wants is an error if a text lacks one of the parts.
func wants(text string, parts ...string) error {
	for _, part := range parts {
		if !strings.Contains(text, part) {
			return fmt.Errorf("no %s in %.600s", part, text)
		}
	}
	return nil
}

// startConsole installs the console of the chart, with TLS. It returns an address on this machine and the certificate.
func (e *testCase) startConsole() (at string, roots *x509.CertPool) {
	e.Helper()
	cert, key := e.selfSigned()
	secret := &corev1.Secret{ObjectMeta: metav1.ObjectMeta{Name: consoleName + "-tls", Namespace: kerfNamespace},
		Type: corev1.SecretTypeTLS, Data: map[string][]byte{"tls.crt": cert, "tls.key": key}}
	secrets := e.client.CoreV1().Secrets(kerfNamespace)
	if _, err := secrets.Create(background(), secret, metav1.CreateOptions{}); err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = secrets.Delete(background(), secret.Name, metav1.DeleteOptions{}) })
	text := e.rendered("console")
	e.Cleanup(func() { e.kubectl(text, "delete", "--ignore-not-found", "-f", "-") })
	if err := e.apply(text); err != nil {
		e.Fatal(err)
	}
	eventually(e, "the console", func() error {
		d, err := e.client.AppsV1().Deployments(kerfNamespace).Get(background(), consoleName, metav1.GetOptions{})
		if err == nil && d.Status.ReadyReplicas != 1 {
			err = fmt.Errorf("%d pods are ready", d.Status.ReadyReplicas)
		}
		return err
	})
	roots = x509.NewCertPool()
	roots.AppendCertsFromPEM(cert)
	return "https://" + e.forward("service/"+consoleName, "443"), roots
}

// selfSigned is a certificate of the console and its key, as PEM.
func (e *testCase) selfSigned() (cert, key []byte) {
	e.Helper()
	secret, err := ecdsa.GenerateKey(elliptic.P256(), rand.Reader)
	if err != nil {
		e.Fatal(err)
	}
	made := &x509.Certificate{SerialNumber: big.NewInt(1), DNSNames: []string{consoleName}, IsCA: true,
		NotBefore: time.Now().Add(-time.Hour), NotAfter: time.Now().Add(time.Hour), BasicConstraintsValid: true}
	der, err := x509.CreateCertificate(rand.Reader, made, made, &secret.PublicKey, secret)
	if err != nil {
		e.Fatal(err)
	}
	text, err := x509.MarshalPKCS8PrivateKey(secret)
	if err != nil {
		e.Fatal(err)
	}
	return pem.EncodeToMemory(&pem.Block{Type: "CERTIFICATE", Bytes: der}),
		pem.EncodeToMemory(&pem.Block{Type: "PRIVATE KEY", Bytes: text})
}

// forward forwards a port of this machine to a port in the cluster until the test ends, and returns its address.
func (e *testCase) forward(to, port string) string {
	e.Helper()
	c := exec.CommandContext(e.Context(), e.node.env["BIN"]+"/kubectl", "--kubeconfig", e.node.env["KUBECONFIG"], "-n",
		kerfNamespace, "port-forward", to, ":"+port)
	var said bytes.Buffer
	c.Stderr = &said
	out, err := c.StdoutPipe()
	if err == nil {
		err = c.Start()
	}
	if err != nil {
		e.Fatal(err)
	}
	e.Cleanup(func() { _ = c.Wait() }) // The end of the test's context kills it before.
	line, err := bufio.NewReader(out).ReadString('\n')
	_, address, found := strings.Cut(line, "Forwarding from ")
	address, _, arrow := strings.Cut(address, " -> ")
	if err != nil || !found || !arrow {
		_, _ = c.Process.Kill(), c.Wait() // It writes said until then.
		e.Fatalf("kubectl port-forward says %q, %q: %v", line, said.String(), err)
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // It ends with the process.
	return address
}

// session is a user of the console. Its code is the answer to the login.
type session struct {
	e    *testCase
	at   string
	http http.Client
	code int
}

// consoleUser makes a service account with a binding, and logs it in.
func (e *testCase) consoleUser(at string, roots *x509.CertPool, name, kind, role string) *session {
	e.Helper()
	if r := e.kubectl("", "-n", e.namespace, "create", "serviceaccount", name); r.err != nil {
		e.Fatal(r)
	}
	bound := e.namespace + "-" + name
	e.Cleanup(func() { e.kubectl("", "delete", "--ignore-not-found", kind, bound) })
	if r := e.kubectl("", "create", kind, bound, role, "--serviceaccount="+e.namespace+":"+name); r.err != nil {
		e.Fatal(r)
	}
	s := e.consoleLogin(at, roots, e.token(name))
	if s.code != http.StatusSeeOther {
		e.Fatalf("the login of %s gets %d", name, s.code)
	}
	return s
}

// token is one of a service account of the test.
func (e *testCase) token(account string) string {
	e.Helper()
	r, err := e.client.CoreV1().ServiceAccounts(e.namespace).CreateToken(background(), account,
		&authenticationv1.TokenRequest{}, metav1.CreateOptions{})
	if err != nil {
		e.Fatal(err)
	}
	return r.Status.Token
}

func (e *testCase) consoleLogin(at string, roots *x509.CertPool, token string) *session {
	e.Helper()
	jar, err := cookiejar.New(nil)
	if err != nil {
		e.Fatal(err)
	}
	s := &session{e: e, at: at, http: http.Client{Jar: jar, Timeout: 20 * time.Second,
		Transport:     &http.Transport{TLSClientConfig: &tls.Config{RootCAs: roots, ServerName: consoleName}},
		CheckRedirect: func(*http.Request, []*http.Request) error { return http.ErrUseLastResponse }}}
	r, err := s.http.PostForm(at+"/login", url.Values{"token": {token}})
	if err != nil {
		e.Fatal(err)
	}
	_ = r.Body.Close()
	s.code = r.StatusCode
	return s
}

// snapshot is the first data in the stream of the console.
func (s *session) snapshot() string {
	s.e.Helper()
	ctx, cancel := context.WithTimeout(s.e.Context(), 10*time.Second)
	defer cancel()
	asked, err := http.NewRequestWithContext(ctx, http.MethodGet, s.at+"/api/stream", nil)
	if err != nil {
		s.e.Fatal(err)
	}
	r, err := s.http.Do(asked)
	if err != nil {
		s.e.Fatal(err)
	}
	defer r.Body.Close()
	lines := bufio.NewScanner(r.Body)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		if data, is := bytes.CutPrefix(lines.Bytes(), []byte("data: ")); is && len(data) > len("{}") {
			return string(data)
		}
	}
	s.e.Fatalf("the stream ended with %s: %v", r.Status, lines.Err())
	return ""
}
