// Copyright 2026 The Kerf Authors
// SPDX-License-Identifier: Apache-2.0

package model

import (
	"bytes"
	"container/list"
	"encoding/json"
)

// mostGone is how many removed objects the store remembers for viewers that are behind.
const mostGone = 10000

// Item is a version of an object of the store. Its fields do not change.
type Item struct {
	// Key is the kind and the name, such as "node/a".
	Key string
	// Rev is the store's revision at which the object became so.
	Rev uint64
	// Body is the object's JSON; nil for one that is gone.
	Body []byte
}

// Store has the newest version of each object, in the order of their last change. A viewer asks for what changed since
// the revision that it has. One that was slow gets one version of each object, however often the object changed. A
// Store is not safe for use by several goroutines at a time.
type Store struct {
	rev   uint64
	items map[string]*list.Element
	order *list.List
	gone  int
	// forgotten is the newest revision of a removed object that the store no longer remembers.
	forgotten uint64
}

// NewStore makes an empty store.
func NewStore() *Store { return &Store{items: map[string]*list.Element{}, order: list.New()} }

// Rev is the revision of the newest change; 0 for an empty store.
func (s *Store) Rev() uint64 { return s.rev }

// Len is the number of objects.
func (s *Store) Len() int { return len(s.items) - s.gone }

// Set records an object, which must be one that JSON can have. It returns false if the object is as it was.
func (s *Store) Set(key string, value any) bool {
	body, err := json.Marshal(value)
	if err != nil { // a type that JSON cannot have is shown, and not hidden
		body, _ = json.Marshal(err.Error())
	}
	if e := s.items[key]; e != nil {
		if old := itemOf(e); bytes.Equal(old.Body, body) {
			return false
		}
	}
	s.put(Item{Key: key, Body: body})
	return true
}

// Remove records that an object is gone. It returns false if there is none.
func (s *Store) Remove(key string) bool {
	e := s.items[key]
	if e == nil || itemOf(e).Body == nil {
		return false
	}
	s.put(Item{Key: key})
	return true
}

func (s *Store) put(i Item) {
	s.rev++
	i.Rev = s.rev
	if e := s.items[i.Key]; e != nil {
		if itemOf(e).Body == nil {
			s.gone--
		}
		s.order.Remove(e)
	}
	if i.Body == nil {
		s.gone++
	}
	s.items[i.Key] = s.order.PushBack(i)
	s.forget()
}

// forget drops the oldest of too many removed objects.
func (s *Store) forget() {
	for e := s.order.Front(); s.gone > mostGone && e != nil; {
		next := e.Next()
		if i := itemOf(e); i.Body == nil {
			s.forgotten = i.Rev
			delete(s.items, i.Key)
			s.order.Remove(e)
			s.gone--
		}
		e = next
	}
}

// mostSince bounds the objects of one answer of Since, so that many new viewers at once need little memory.
const mostSince = 1000

// Cursor is how much of the store a viewer has. The zero value is nothing.
type Cursor struct {
	// rev is the revision up to which it has all changes. base is the revision at which it began to read the state.
	rev, base uint64
}

// Since are objects that changed after what the viewer has, the oldest change first, and what the viewer has then. More
// is true if there are more of them now. Reset is true if the viewer must first drop what it has: it is new, or so far
// behind that removed objects are forgotten. The objects are in the memory of into, if it is large enough.
func (s *Store) Since(at Cursor, into []Item) (changed []Item, next Cursor, reset, more bool) {
	if reset = at.rev == 0 || at.base < s.forgotten; reset {
		at = Cursor{base: s.rev}
	}
	changed = into[:0]
	first := s.order.Back()
	for e := first; e != nil && itemOf(e).Rev > at.rev; e = e.Prev() {
		first = e
	}
	for e := first; e != nil; e = e.Next() {
		i := itemOf(e)
		if i.Rev <= at.rev {
			continue
		}
		if len(changed) == mostSince {
			return changed, Cursor{changed[mostSince-1].Rev, at.base}, reset, true
		}
		changed = append(changed, i)
	}
	return changed, Cursor{s.rev, s.rev}, reset, false
}

// Each calls do with each object.
func (s *Store) Each(do func(Item)) {
	for e := s.order.Front(); e != nil; e = e.Next() {
		if i := itemOf(e); i.Body != nil {
			do(i)
		}
	}
}

func itemOf(e *list.Element) Item {
	i, _ := e.Value.(Item)
	return i
}
