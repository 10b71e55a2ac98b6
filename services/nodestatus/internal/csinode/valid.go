package csinode

import (
	"context"
	"errors"
	"fmt"
	"strings"

	apierrors "k8s.io/apimachinery/pkg/api/errors"
	"k8s.io/apimachinery/pkg/util/validation"
)

const (
	// mostOfNodeID and mostOfName are how long an apiserver lets a driver's name of the
	// node be in a CSINode, and its own, in bytes.
	mostOfNodeID = 256
	mostOfName   = 63
)

// wrong says why an apiserver would refuse what a driver says of itself, with all that
// is written beside it.
func wrong(d Driver) error {
	if len(d.Name) > mostOfName || len(validation.IsDNS1123Subdomain(strings.ToLower(d.Name))) > 0 {
		return fmt.Errorf("CSI driver %s cannot be in a CSINode: its name is no DNS name of at most %d bytes", d.Name, mostOfName)
	}
	if n := len(d.NodeID); n == 0 || n > mostOfNodeID {
		return fmt.Errorf("CSI driver %s cannot be in a CSINode: its name of the node has %d bytes, where 1 to %d may be", d.Name, n, mostOfNodeID)
	}
	for key, value := range d.Topology {
		if why := append(validation.IsQualifiedName(key), validation.IsValidLabelValue(value)...); len(why) > 0 {
			return fmt.Errorf("CSI driver %s cannot be in a CSINode: %.128q:%.128q is no label of a Node: %s", d.Name, key, value, why[0])
		}
	}
	return nil
}

// tellEach is tellNode for each driver by itself, when the apiserver refuses them
// together: one whose words it does not take keeps no other out.
func (k *Keeper) tellEach(ctx context.Context, drivers []Driver) (usable []Driver, clash, err error) {
	for _, d := range drivers {
		one, why, err := k.tellNode(ctx, []Driver{d})
		switch {
		case refused(err):
			clash = errors.Join(clash, fmt.Errorf("CSI driver %s: %w", d.Name, err))
		case err != nil:
			return nil, nil, err
		default:
			usable, clash = append(usable, one...), errors.Join(clash, why)
		}
	}
	return usable, clash, nil
}

// refused says whether an apiserver does not take what was written, now or ever.
func refused(err error) bool {
	return apierrors.IsForbidden(err) || apierrors.IsInvalid(err) || apierrors.IsBadRequest(err)
}
