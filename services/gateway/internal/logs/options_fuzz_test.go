package logs

import (
	"net/url"
	"testing"

	"k8s.io/apimachinery/pkg/util/validation/field"

	v1 "k8s.io/api/core/v1"
)

func FuzzLogOptionsThatPassAreSoundAndSurviveTheWire(f *testing.F) {
	for _, seed := range []string{
		"", "follow=true&previous=1", "tail=all&tailLines=x", "tail=5", "tailLines=-1", "limitBytes=0", "limitBytes=9223372036854775808",
		"sinceSeconds=1&sinceTime=2026-01-02T03:04:05Z", "sinceTime=0000-01-01T00:00:00Z", "sinceTime=9999-12-31T23:59:60Z",
		"stream=Stdout", "stream=Stderr&tailLines=1", "stream=all", "timestamps&follow", "follow=FALSE", "tailLines=+5", "tailLines=0x5", "stream=%00",
	} {
		f.Add(seed, true)
		f.Add(seed, false)
	}
	f.Fuzz(func(t *testing.T, raw string, streams bool) {
		query, err := url.ParseQuery(raw)
		if err != nil {
			return
		}
		o, status, message := parse(query, streams)
		if status != 0 {
			if (status != 400 && status != 422) || message == "" || o != nil {
				t.Fatalf("status %d, message %q, options %v", status, message, o)
			}
			return
		}
		if errs := unsound(o, streams); len(errs) > 0 {
			t.Fatalf("%q passes: %v", raw, errs)
		}
		wire, err := o.Marshal()
		if err != nil {
			t.Fatal(err)
		}
		var back v1.PodLogOptions
		if err := back.Unmarshal(wire); err != nil {
			t.Fatal(err)
		}
		if back.Follow != o.Follow || (back.TailLines == nil) != (o.TailLines == nil) || (back.SinceTime == nil) != (o.SinceTime == nil) {
			t.Fatalf("%+v came back as %+v", o, back)
		}
	})
}

// unsound says what the apiserver would refuse.
func unsound(o *v1.PodLogOptions, streams bool) field.ErrorList {
	var errs field.ErrorList
	bad := func(is bool, name string) {
		if is {
			errs = append(errs, field.Invalid(field.NewPath(name), "", ""))
		}
	}
	bad(o.TailLines != nil && *o.TailLines < 0, "tailLines")
	bad(o.LimitBytes != nil && *o.LimitBytes < 1, "limitBytes")
	bad(o.SinceSeconds != nil && (*o.SinceSeconds < 1 || o.SinceTime != nil), "sinceSeconds")
	if o.Stream != nil {
		bad(!streams && *o.Stream != v1.LogStreamAll, "stream")
		bad(*o.Stream != v1.LogStreamAll && (*o.Stream != v1.LogStreamStdout && *o.Stream != v1.LogStreamStderr || o.TailLines != nil), "stream")
	}
	return errs
}
