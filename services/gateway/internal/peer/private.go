package peer

import (
	"strconv"
	"strings"

	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
)

// The page asks nobody who they are. What a probe's attempt said is the container's own
// output, or names the URL or the command, of which more than the path may be secret.
// `polylet explain` and `polylet probes` show it. So does the former what a container calls its
// files: of a decision's file nothing is taken.

// handlerOf says what a probe does, without a command's arguments and without
// headers: they may be secret.
func handlerOf(t *podsyncv1.ProbeTarget) string {
	switch h := t.GetHandler().(type) {
	case *podsyncv1.ProbeTarget_HttpGet:
		return "GET " + h.HttpGet.GetScheme() + " :" + port(h.HttpGet.GetPort()) + withoutQuery(h.HttpGet.GetPath())
	case *podsyncv1.ProbeTarget_TcpSocket:
		return "TCP :" + port(h.TcpSocket.GetPort())
	case *podsyncv1.ProbeTarget_Grpc:
		return "gRPC :" + port(h.Grpc.GetPort())
	case *podsyncv1.ProbeTarget_Exec:
		if c := h.Exec.GetCommand(); len(c) > 0 {
			return "exec " + c[0]
		}
		return "exec"
	}
	return ""
}

func port(n int32) string { return strconv.Itoa(int(n)) }

func withoutQuery(path string) string {
	path, _, _ = strings.Cut(path, "?")
	return path
}

// reasonOf is why a pod waits, for probes without what an attempt said.
func reasonOf(w *podsyncv1.Wait) string {
	if w.GetKind() != "probe" {
		return w.GetReason()
	}
	said, _, _ := strings.Cut(w.GetReason(), ": ")
	return withoutQuery(said) // a podsync of the last release names it
}

// saidOf are an entry's error and detail; a probe's has none.
func saidOf(e *podsyncv1.TimelineEntry) (failed, detail string) {
	if e.GetStep() == "probe attempt failed" || strings.HasSuffix(e.GetStep(), " probe fails") {
		return "", ""
	}
	return e.GetError(), e.GetDetail()
}

// messageOf is the message of a pod's event, for probes without what the container
// answered.
func messageOf(e *podsyncv1.RecentEvent) string {
	if e.GetReason() == "Unhealthy" || e.GetReason() == "ProbeWarning" {
		said, _, _ := strings.Cut(e.GetMessage(), ":")
		return said
	}
	return e.GetMessage()
}
