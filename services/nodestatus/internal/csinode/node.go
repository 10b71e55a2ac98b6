package csinode

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"

	v1 "k8s.io/api/core/v1"
	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/answer"
)

// nodeIDs is the annotation with what each driver calls this node.
const nodeIDs = "csi.volume.kubernetes.io/nodeid"

// tellNode writes the drivers' names for the node and the labels of where it is, and
// returns all drivers but those that cannot be told of, or whose labels stand in the way
// of others: clash says of which.
func (k *Keeper) tellNode(ctx context.Context, drivers []Driver) (usable []Driver, clash, err error) {
	there, ids, err := k.readNode(ctx)
	if err != nil {
		return nil, nil, err
	}
	labels, changed := map[string]string{}, false
	for _, d := range drivers {
		if d.Gone {
			usable = append(usable, d)
			continue
		}
		if c := cmp.Or(wrong(d), clashes(there.Labels, labels, d)); c != nil {
			clash = errors.Join(clash, c)
			continue
		}
		usable = append(usable, d)
		for key, value := range d.Topology {
			if is, has := there.Labels[key]; !has || is != value { // a value may be empty
				labels[key] = value
			}
		}
		if ids[d.Name] != d.NodeID {
			ids[d.Name], changed = d.NodeID, true
		}
	}
	if changed || len(labels) > 0 {
		err = k.patchNode(ctx, there, ids, labels)
	}
	return usable, clash, err
}

// clashes says that a label of a driver is there with another value.
func clashes(there, new map[string]string, d Driver) error {
	for key, value := range d.Topology {
		for _, labels := range []map[string]string{there, new} {
			if is, has := labels[key]; has && is != value {
				return fmt.Errorf("CSI driver %s: detected topology value collision: driver reported %q:%q but existing label is %q:%q; mend the driver, or remove the Node's label", d.Name, key, value, key, is)
			}
		}
	}
	return nil
}

// forgetOnNode removes the names of drivers that are gone.
func (k *Keeper) forgetOnNode(ctx context.Context, drivers []Driver) error {
	gone := false
	for _, d := range drivers {
		gone = gone || d.Gone
	}
	if !gone {
		return nil
	}
	there, ids, err := k.readNode(ctx)
	if err != nil {
		return err
	}
	before := len(ids)
	for _, d := range drivers {
		if d.Gone {
			delete(ids, d.Name)
		}
	}
	if len(ids) == before {
		return nil
	}
	return k.patchNode(ctx, there, ids, nil)
}

// readNode returns the Node with the drivers' names for it. An annotation that nobody
// can read is written anew.
func (k *Keeper) readNode(ctx context.Context) (*v1.Node, map[string]string, error) {
	ctx, cancel := k.request(ctx)
	defer cancel()
	there, err := k.cfg.Nodes.Get(ctx, k.cfg.NodeName, metav1.GetOptions{})
	if err := answer.Object(there, k.cfg.NodeName, err); err != nil {
		return nil, nil, k.failed("read Node", err)
	}
	ids := map[string]string{}
	if text := there.Annotations[nodeIDs]; text != "" && json.Unmarshal([]byte(text), &ids) != nil || ids == nil {
		ids = map[string]string{}
	}
	return there, ids, nil
}

// patchNode writes the annotation, which is removed with the last driver, and labels. It
// fails when the Node has changed meanwhile.
func (k *Keeper) patchNode(ctx context.Context, there *v1.Node, ids, labels map[string]string) error {
	annotations := map[string]any{nodeIDs: nil}
	if len(ids) > 0 {
		text, err := json.Marshal(ids)
		if err != nil {
			return err
		}
		annotations[nodeIDs] = string(text)
	}
	metadata := map[string]any{"resourceVersion": there.ResourceVersion, "annotations": annotations}
	if len(labels) > 0 {
		metadata["labels"] = labels
	}
	patch, err := json.Marshal(map[string]any{"metadata": metadata})
	if err != nil {
		return err
	}
	ctx, cancel := k.request(ctx)
	defer cancel()
	patched, err := k.cfg.Nodes.Patch(ctx, k.cfg.NodeName, types.MergePatchType, patch, metav1.PatchOptions{})
	if err := answer.Object(patched, k.cfg.NodeName, err); err != nil {
		return k.failed("write the CSI drivers' words on Node", err)
	}
	return nil
}
