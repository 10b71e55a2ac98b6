package fakeapiserver

import (
	"bytes"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"sync"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/apimachinery/pkg/runtime/schema"
)

// entry is a stored object with its encodings, made when they are first wanted. It
// never changes: an update is a new entry.
type entry struct {
	obj runtime.Object

	jsonOnce, protoOnce sync.Once
	asJSON, asProto     []byte
}

// json is the object as JSON.
func (e *entry) json() []byte {
	e.jsonOnce.Do(func() { e.asJSON = raw(e.obj) })
	return e.asJSON
}

// proto is the object as a bare protobuf message.
func (e *entry) proto() []byte {
	e.protoOnce.Do(func() { e.asProto = message(e.obj) })
	return e.asProto
}

// message encodes what has a protobuf form.
func message(v any) []byte {
	m, ok := v.(interface{ Marshal() ([]byte, error) })
	if !ok {
		panic(fmt.Sprintf("a %T has no protobuf form", v))
	}
	data, err := m.Marshal()
	if err != nil {
		panic(fmt.Sprintf("encode a %T: %v", v, err))
	}
	return data
}

// magic begins every protobuf document of Kubernetes.
var magic = []byte("k8s\x00")

// envelope is a protobuf document: the message with what it is.
func envelope(gvk schema.GroupVersionKind, data []byte) []byte {
	version, kind := gvk.ToAPIVersionAndKind()
	return append(bytes.Clone(magic), message(&runtime.Unknown{TypeMeta: runtime.TypeMeta{APIVersion: version, Kind: kind}, Raw: data})...)
}

// wantsProto says whether the client prefers protobuf, for what has such a form here.
func (q *request) wantsProto(hr *http.Request) bool {
	return q.res != nil && q.gv() != eventsGV && strings.HasPrefix(hr.Header.Get("Accept"), runtime.ContentTypeProtobuf)
}

// present is an entry as the client wants it.
func (q *request) present(e *entry) document {
	switch {
	case q.gv() == eventsGV:
		return document{data: eventsJSON(e.obj)}
	case q.proto:
		return document{data: envelope(q.res.gvk, e.proto()), proto: true}
	}
	return document{data: e.json()}
}

// document is an encoded answer.
type document struct {
	data  []byte
	proto bool
}

// presentList is a list of entries as the client wants it.
func (q *request) presentList(entries []*entry, version int64) document {
	kind := q.res.gvk.Kind + "List"
	var out bytes.Buffer
	if q.proto {
		// Every list of Kubernetes has its metadata in field 1 and its items in field 2.
		field := func(tag byte, data []byte) {
			out.Write(binary.AppendUvarint([]byte{tag<<3 | 2}, uint64(len(data))))
			out.Write(data)
		}
		field(1, message(&metav1.ListMeta{ResourceVersion: fmt.Sprint(version)}))
		for _, e := range entries {
			field(2, e.proto())
		}
		return document{data: envelope(q.gv().WithKind(kind), out.Bytes()), proto: true}
	}
	fmt.Fprintf(&out, `{"kind":%q,"apiVersion":%q,"metadata":{"resourceVersion":"%d"},"items":[`, kind, q.gv().String(), version)
	for i, e := range entries {
		if i > 0 {
			out.WriteByte(',')
		}
		out.Write(q.present(e).data)
	}
	out.WriteString("]}")
	return document{data: out.Bytes()}
}

// frame is one event of a watch on the wire.
func (q *request) frame(kind string, object []byte) []byte {
	if q.proto {
		event := message(&metav1.WatchEvent{Type: kind, Object: runtime.RawExtension{Raw: object}})
		return append(binary.BigEndian.AppendUint32(nil, uint32(len(event))), event...)
	}
	line := raw(struct {
		Type   string          `json:"type"`
		Object json.RawMessage `json:"object"`
	}{kind, object})
	return append(line, '\n')
}

// write sends an answer: a document as it is, anything else as JSON.
func write(w http.ResponseWriter, code int, body any) {
	d, ok := body.(document)
	if !ok {
		d = document{data: raw(body)}
	}
	kind := runtime.ContentTypeJSON
	if d.proto {
		kind = runtime.ContentTypeProtobuf
	}
	w.Header().Set("Content-Type", kind)
	w.WriteHeader(code)
	if _, err := w.Write(d.data); err != nil {
		panic(http.ErrAbortHandler)
	}
}

// raw is anything as JSON.
func raw(v any) []byte {
	data, err := json.Marshal(v)
	if err != nil {
		panic(fmt.Sprintf("encode a %T: %v", v, err))
	}
	return data
}
