// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package config

// Field is what people are told of one field of the document.
type Field struct {
	// Name is as it is written.
	Name string
	// Doc says what it means, in sentences.
	Doc string
	// Default says what holds where it is left out; empty where nothing does.
	Default string
	// Required is true for a field that is never left out.
	Required bool
	Type     Type
}

// TypeKind is what kind of value a field has.
type TypeKind uint8

// The kinds.
const (
	// KindText is a text.
	KindText TypeKind = iota
	// KindWord is one of Words.
	KindWord
	// KindWhole is a whole number, from Least to Most.
	KindWhole
	// KindNumber is a number, from Least to Most.
	KindNumber
	// KindSize is an amount of memory: a text with a unit, or a number of bytes.
	KindSize
	// KindTime is a duration with a unit, from Least to Most.
	KindTime
	// KindFlag is true or false.
	KindFlag
	// KindList is a list of Of.
	KindList
	// KindMap is a mapping from texts to Of.
	KindMap
	// KindObject is a mapping with Fields.
	KindObject
)

// Type is what a value may be.
type Type struct {
	Kind TypeKind
	// Words are what a KindWord may be.
	Words []string
	// Least and Most bound numbers and times; empty where there is no bound.
	Least, Most string
	// Example is a value as it may be written.
	Example string
	// Of is what a list or a map has.
	Of *Type
	// Fields are those of an object.
	Fields []Field
}

// Describe is the type of the whole document, as Decode reads it.
func Describe() Type {
	var h heading
	return Type{Kind: KindObject, Fields: h.fields().described()}
}
