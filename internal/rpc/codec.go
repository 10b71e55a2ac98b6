package rpc

import (
	"strings"
	"unicode/utf8"

	"google.golang.org/grpc/encoding"
	grpcproto "google.golang.org/grpc/encoding/proto"
	"google.golang.org/grpc/mem"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
)

// answers encodes what a server sends. A string that is no UTF-8 makes a whole
// message of proto3 impossible, and there are messages with something of every pod:
// a pod that was created as protobuf may have any bytes in its strings, since no
// apiserver looks. Such strings are shown with U+FFFD for what is wrong in them.
//
// Requests are not mended: what somebody asks for is done as asked, or refused.
type answers struct{ encoding.CodecV2 }

func newAnswers() answers { return answers{encoding.GetCodecV2(grpcproto.Name)} }

// Marshal implements encoding.CodecV2.
func (a answers) Marshal(v any) (mem.BufferSlice, error) {
	data, err := a.CodecV2.Marshal(v)
	m, ok := v.(proto.Message)
	if err == nil || !ok {
		return data, err
	}
	m = proto.Clone(m) // others may read v
	if !mendStrings(m.ProtoReflect()) {
		return nil, err
	}
	return a.CodecV2.Marshal(m)
}

// mendStrings makes all strings of m valid UTF-8, and says whether one was not.
func mendStrings(m protoreflect.Message) (mended bool) {
	m.Range(func(field protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		switch {
		case field.IsMap():
			mended = mendMap(field, v.Map()) || mended
		case field.IsList():
			for list, i := v.List(), 0; i < list.Len(); i++ {
				mended = mendValue(field, list.Get(i), func(v protoreflect.Value) { list.Set(i, v) }) || mended
			}
		default:
			mended = mendValue(field, v, func(v protoreflect.Value) { m.Set(field, v) }) || mended
		}
		return true
	})
	return mended
}

func mendMap(field protoreflect.FieldDescriptor, entries protoreflect.Map) (mended bool) {
	entries.Range(func(key protoreflect.MapKey, v protoreflect.Value) bool {
		mended = mendValue(field.MapValue(), v, func(v protoreflect.Value) { entries.Set(key, v) }) || mended
		if field.MapKey().Kind() != protoreflect.StringKind || utf8.ValidString(key.String()) {
			return true
		}
		v = entries.Get(key)
		entries.Clear(key)
		entries.Set(protoreflect.ValueOfString(valid(key.String())).MapKey(), v)
		mended = true
		return true
	})
	return mended
}

func mendValue(field protoreflect.FieldDescriptor, v protoreflect.Value, set func(protoreflect.Value)) (mended bool) {
	switch field.Kind() {
	case protoreflect.MessageKind, protoreflect.GroupKind:
		return mendStrings(v.Message())
	case protoreflect.StringKind:
		if !utf8.ValidString(v.String()) {
			set(protoreflect.ValueOfString(valid(v.String())))
			return true
		}
	}
	return false
}

func valid(s string) string { return strings.ToValidUTF8(s, "\uFFFD") }
