// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package main

import (
	"testing"

	admissionv1 "k8s.io/api/admissionregistration/v1"
	apiversion "k8s.io/apimachinery/pkg/util/version"
	"k8s.io/apiserver/pkg/admission/plugin/cel"
	"k8s.io/apiserver/pkg/cel/environment"

	celgo "github.com/google/cel-go/cel"
)

// oldest is the oldest Kubernetes that the chart takes.
var oldest = apiversion.MajorMinor(1, 30)

// expression is one of a policy; what it may return is not looked at.
type expression string

func (e expression) GetExpression() string      { return string(e) }
func (e expression) ReturnTypes() []*celgo.Type { return []*celgo.Type{celgo.AnyType} }
func (e expression) GetName() string            { return "" }

// variable is a policy's variable.
type variable struct {
	expression
	name string
}

func (v variable) GetName() string { return v.name }

// compiles has the API server of a version compile each expression of a policy, and counts them.
func compiles(t *testing.T, p *admissionv1.ValidatingAdmissionPolicy, version *apiversion.Version) (n int) {
	t.Helper()
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(version))
	if err != nil {
		t.Fatal(err)
	}
	with := cel.OptionalVariableDeclarations{HasParams: p.Spec.ParamKind != nil}
	compile := func(what string, e cel.ExpressionAccessor) {
		n++
		if r := compiler.CompileCELExpression(e, with, environment.NewExpressions); r.Error != nil {
			t.Errorf("%s: %s: %v", p.Name, what, r.Error)
		}
	}
	for _, c := range p.Spec.MatchConditions {
		compile("match condition "+c.Name, expression(c.Expression))
	}
	for _, v := range p.Spec.Variables {
		compile("variable "+v.Name, expression(v.Expression))
		compiler.CompileAndStoreVariable(variable{expression(v.Expression), v.Name}, with,
			environment.NewExpressions)
	}
	for _, v := range p.Spec.Validations {
		compile("validation", expression(v.Expression))
		if v.MessageExpression != "" {
			compile("message", expression(v.MessageExpression))
		}
	}
	return n
}

// TestExpressionsOfOldest: each expression of the validating policies is one that the oldest Kubernetes compiles.
func TestExpressionsOfOldest(t *testing.T) {
	n := 0
	for _, set := range []values{{}, plain(), {"agent": values{"allowEviction": true, "nodeHealth": true}}} {
		for _, p := range byName[*admissionv1.ValidatingAdmissionPolicy](t, set) {
			n += compiles(t, p, oldest)
		}
	}
	// Pods are changed from another version on.
	compiler, err := cel.NewCompositedCompiler(environment.MustBaseEnvSet(apiversion.MajorMinor(1, 36)))
	if err != nil {
		t.Fatal(err)
	}
	for name, p := range byName[*admissionv1.MutatingAdmissionPolicy](t,
		values{"admission": values{"translate": values{"enabled": true}}}) {
		for _, c := range p.Spec.MatchConditions {
			n++
			if r := compiler.CompileCELExpression(expression(c.Expression), cel.OptionalVariableDeclarations{},
				environment.NewExpressions); r.Error != nil {
				t.Errorf("%s: match condition %s: %v", name, c.Name, r.Error)
			}
		}
	}
	if n < 100 {
		t.Errorf("%d expressions were compiled", n)
	}
}
