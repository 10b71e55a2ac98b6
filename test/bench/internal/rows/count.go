package rows

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"net/http"
	"os"
	"strconv"
	"strings"

	"github.com/polylet/polylet/test/bench/internal/stage"
)

// auditEvent is the part of an apiserver's audit event that is counted.
// Source: https://kubernetes.io/docs/reference/config-api/apiserver-audit.v1/
type auditEvent struct {
	Stage     string `json:"stage"`
	Verb      string `json:"verb"`
	ObjectRef struct {
		Resource    string `json:"resource"`
		Subresource string `json:"subresource"`
	} `json:"objectRef"`
}

// nodeRequests counts what the node has asked of the apiserver, by verb and
// resource: a watch when it begins, anything else when it is answered.
func nodeRequests(st *stage.Stage) (map[string]float64, error) {
	f, err := os.Open(st.Cluster.AuditLog)
	if err != nil {
		return nil, fmt.Errorf("count requests: %w", err)
	}
	defer f.Close()
	return countRequests(f)
}

func countRequests(log io.Reader) (map[string]float64, error) {
	counts := map[string]float64{}
	lines := bufio.NewReader(log)
	for {
		line, err := lines.ReadBytes('\n')
		if errors.Is(err, io.EOF) {
			return counts, nil // what is not ended yet is being written
		}
		if err != nil {
			return nil, fmt.Errorf("read the audit log: %w", err)
		}
		var e auditEvent
		if err := json.Unmarshal(line, &e); err != nil {
			return nil, fmt.Errorf("audit event %q: %w", line, err)
		}
		if begins, watches := e.Stage == "ResponseStarted", e.Verb == "watch"; begins != watches {
			continue
		}
		name := e.Verb + " " + e.ObjectRef.Resource
		if e.ObjectRef.Subresource != "" {
			name += "/" + e.ObjectRef.Subresource
		}
		counts[name]++
	}
}

// runtimeCalls counts the CRI calls that containerd has answered, by method.
func runtimeCalls(ctx context.Context, st *stage.Stage) (map[string]float64, error) {
	req, err := http.NewRequestWithContext(ctx, http.MethodGet, st.Runtime.MetricsURL, nil)
	if err != nil {
		return nil, err
	}
	res, err := http.DefaultClient.Do(req)
	if err != nil {
		return nil, fmt.Errorf("count runtime calls: %w", err)
	}
	defer res.Body.Close()
	if res.StatusCode != http.StatusOK {
		return nil, fmt.Errorf("count runtime calls: %s answers %s", st.Runtime.MetricsURL, res.Status)
	}
	return countCalls(res.Body)
}

// countCalls reads lines such as
//
//	grpc_server_handled_total{grpc_code="OK",grpc_method="Status",grpc_service="runtime.v1.RuntimeService",grpc_type="unary"} 12
func countCalls(metrics io.Reader) (map[string]float64, error) {
	counts := map[string]float64{}
	lines := bufio.NewScanner(metrics)
	lines.Buffer(nil, 1<<20)
	for lines.Scan() {
		line := lines.Text()
		if !strings.HasPrefix(line, "grpc_server_handled_total{") || !strings.Contains(line, `grpc_service="runtime.v1.`) {
			continue
		}
		_, after, _ := strings.Cut(line, `grpc_method="`)
		method, _, ok := strings.Cut(after, `"`)
		n, err := strconv.ParseFloat(line[strings.LastIndexByte(line, ' ')+1:], 64)
		if !ok || err != nil {
			return nil, fmt.Errorf("metric %q: no method or no number", line)
		}
		counts[method] += n
	}
	return counts, lines.Err()
}
