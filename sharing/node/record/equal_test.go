// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package record

import (
	"reflect"
	"testing"
)

// Two grants that differ in one field, however deep, are not equal; two that are made alike are.
func TestEqualLooksAtEachField(t *testing.T) {
	fields := 0
	var walk func(at func(*Grant) reflect.Value, name string)
	walk = func(at func(*Grant) reflect.Value, name string) {
		one, other := full(t), full(t)
		v := at(&one)
		switch v.Kind() {
		case reflect.Struct:
			for i := range v.NumField() {
				walk(func(g *Grant) reflect.Value { return at(g).Field(i) }, name+"."+v.Type().Field(i).Name)
			}
			return
		case reflect.Pointer:
			walk(func(g *Grant) reflect.Value { return at(g).Elem() }, name)
			v.SetZero()
		case reflect.Slice:
			walk(func(g *Grant) reflect.Value { return at(g).Index(0) }, name+"[0]")
			v.Set(reflect.Append(v, v.Index(0)))
		case reflect.String:
			v.SetString("another")
		case reflect.Bool:
			v.SetBool(!v.Bool())
		case reflect.Int, reflect.Int32:
			v.SetInt(v.Int() + 1)
		case reflect.Uint32, reflect.Uint64:
			v.SetUint(v.Uint() + 1)
		default:
			t.Fatalf("%s: the test does not know kind %s", name, v.Kind())
		}
		fields++
		if one.equal(&other) || other.equal(&one) {
			t.Errorf("grants that differ in %s are equal", name)
		}
	}
	walk(func(g *Grant) reflect.Value { return reflect.ValueOf(g).Elem() }, "Grant")
	if one, other := full(t), full(t); !one.equal(&other) {
		t.Errorf("not equal: %+v and %+v", one, other)
	}
	if fields < 40 {
		t.Errorf("only %d fields were tried", fields)
	}
	none, empty := Grant{}, Grant{Shares: []Share{}}
	if none.equal(&empty) {
		t.Error("no list of shares and an empty one are equal, and are written differently")
	}
}

// full is a grant of which no field is empty.
func full(t *testing.T) Grant {
	var g Grant
	var fill func(v reflect.Value)
	fill = func(v reflect.Value) {
		switch v.Kind() {
		case reflect.Struct:
			for _, field := range v.Fields() {
				fill(field)
			}
		case reflect.Pointer:
			v.Set(reflect.New(v.Type().Elem()))
			fill(v.Elem())
		case reflect.Slice:
			v.Set(reflect.MakeSlice(v.Type(), 1, 1))
			fill(v.Index(0))
		case reflect.String:
			v.SetString("a")
		case reflect.Bool:
			v.SetBool(true)
		case reflect.Int, reflect.Int32:
			v.SetInt(1)
		case reflect.Uint32, reflect.Uint64:
			v.SetUint(1)
		default:
			t.Fatalf("the test does not know kind %s", v.Kind())
		}
	}
	fill(reflect.ValueOf(&g).Elem())
	return g
}
