// Package apiserver reads and writes this node's own Node object. It owns the
// requests (their form, deadlines, the watch of one object) and must never
// decide what stands in the object.
package apiserver

import (
	"context"
	"encoding/json"
	"fmt"
	"reflect"
	"time"

	v1 "k8s.io/api/core/v1"
	apierrors "k8s.io/apimachinery/pkg/api/errors"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"
	utiljson "k8s.io/apimachinery/pkg/util/json"
	"k8s.io/apimachinery/pkg/util/strategicpatch"
	client "k8s.io/client-go/kubernetes/typed/core/v1"

	"github.com/polylet/polylet/internal/answer"
	"github.com/polylet/polylet/services/nodestatus/internal/node"
)

// Node is the access to the one Node.
type Node struct {
	// Name is the Node's.
	Name string
	// Client is for registration and the watch; Heartbeat, which no rate
	// limit holds up, for the status.
	Client, Heartbeat client.NodeInterface
	// Timeout bounds each request.
	Timeout time.Duration
}

// Register creates the Node, or takes the one that is there and mends its
// labels and annotations.
func (n Node) Register(parent context.Context, cfg node.Config, fresh *v1.Node) (registered *v1.Node, created bool, err error) {
	ctx, cancel := context.WithTimeout(parent, n.Timeout)
	defer cancel()
	registered, err = n.Client.Create(ctx, fresh, metav1.CreateOptions{})
	if err = answer.Object(registered, n.Name, err); err == nil {
		return trim(registered), true, nil
	}
	if !apierrors.IsAlreadyExists(err) && !apierrors.IsForbidden(err) {
		return nil, false, fmt.Errorf("create Node %s: %w", n.Name, err)
	}
	createErr := err
	there, err := n.Client.Get(ctx, n.Name, metav1.GetOptions{})
	if err := answer.Object(there, n.Name, err); err != nil {
		return nil, false, fmt.Errorf("create Node %s: %w; read it: %w", n.Name, createErr, err)
	}
	wanted, changed := node.Join(cfg, there)
	mended, err := n.write(ctx, there, wanted, changed)
	return mended, false, err
}

// Mend writes the labels and annotations that every Node of ours has, if one
// is missing, and returns the Node as it is then.
func (n Node) Mend(ctx context.Context, cfg node.Config, there *v1.Node) (*v1.Node, error) {
	wanted, changed := node.Reconcile(cfg, there)
	return n.write(ctx, there, wanted, changed)
}

// write writes the labels and annotations of wanted that are not those of the Node
// that is there.
func (n Node) write(ctx context.Context, there, wanted *v1.Node, changed bool) (*v1.Node, error) {
	if !changed {
		return trim(there), nil
	}
	patch, err := labelsPatch(there, wanted)
	if err != nil {
		return nil, fmt.Errorf("write the patch of Node %s's labels: %w", n.Name, err)
	}
	ctx, cancel := context.WithTimeout(ctx, n.Timeout)
	defer cancel()
	mended, err := n.Client.Patch(ctx, n.Name, types.MergePatchType, patch, metav1.PatchOptions{})
	if err := answer.Object(mended, n.Name, err); err != nil {
		return nil, fmt.Errorf("mend the labels of Node %s: %w", n.Name, err)
	}
	return trim(mended), nil
}

// Get reads the Node.
func (n Node) Get(parent context.Context) (*v1.Node, error) {
	ctx, cancel := context.WithTimeout(parent, n.Timeout)
	defer cancel()
	there, err := n.Heartbeat.Get(ctx, n.Name, metav1.GetOptions{})
	if err := answer.Object(there, n.Name, err); err != nil {
		return nil, fmt.Errorf("read Node %s: %w", n.Name, err)
	}
	return trim(there), nil
}

// PatchStatus writes what differs between two statuses of the Node.
func (n Node) PatchStatus(parent context.Context, old, wanted *v1.Node) (*v1.Node, error) {
	patch, err := statusPatch(old, wanted)
	if err != nil {
		return nil, fmt.Errorf("write the patch of Node %s's status: %w", n.Name, err)
	}
	ctx, cancel := context.WithTimeout(parent, n.Timeout)
	defer cancel()
	patched, err := n.Heartbeat.PatchStatus(ctx, n.Name, patch)
	if err := answer.Object(patched, n.Name, err); err != nil {
		return nil, fmt.Errorf("patch the status of Node %s: %w", n.Name, err)
	}
	return trim(patched), nil
}

// statusPatch is a strategic merge patch. Addresses are replaced as a whole:
// they merge by type, of which two may be equal on a dual-stack node.
func statusPatch(old, wanted *v1.Node) ([]byte, error) {
	before, err := json.Marshal(v1.Node{Status: old.Status})
	if err != nil {
		return nil, err
	}
	after, err := json.Marshal(v1.Node{Status: wanted.Status})
	if err != nil {
		return nil, err
	}
	patch, err := strategicpatch.CreateTwoWayMergePatch(before, after, v1.Node{})
	if err != nil || reflect.DeepEqual(old.Status.Addresses, wanted.Status.Addresses) {
		return patch, err
	}
	var document map[string]any
	if err := utiljson.Unmarshal(patch, &document); err != nil {
		return nil, err
	}
	status, ok := document["status"].(map[string]any)
	if !ok {
		status = map[string]any{}
		document["status"] = status
	}
	addresses := []any{map[string]any{"$patch": "replace"}}
	for _, a := range wanted.Status.Addresses {
		addresses = append(addresses, a)
	}
	delete(status, "$setElementOrder/addresses")
	status["addresses"] = addresses
	return json.Marshal(document)
}

// labelsPatch is a merge patch of the labels and annotations that differ, and of no
// others: they may have changed since. What is wanted no more is taken away.
func labelsPatch(there, wanted *v1.Node) ([]byte, error) {
	differ := func(old, now map[string]string) map[string]any {
		out := map[string]any{} // never null, which would take all of them away
		for name := range old {
			if _, stays := now[name]; !stays {
				out[name] = nil
			}
		}
		for name, value := range now {
			if was, ok := old[name]; !ok || was != value {
				out[name] = value
			}
		}
		return out
	}
	return json.Marshal(map[string]any{"metadata": map[string]any{
		"labels": differ(there.Labels, wanted.Labels), "annotations": differ(there.Annotations, wanted.Annotations),
	}})
}

// trim drops what is large and never looked at.
func trim(n *v1.Node) *v1.Node {
	n.ManagedFields = nil
	return n
}
