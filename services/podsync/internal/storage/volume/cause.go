package volume

import (
	"context"
	"errors"
	"io/fs"
	"strings"
	"syscall"

	apierrors "k8s.io/apimachinery/pkg/api/errors"

	"github.com/polylet/polylet/internal/rpcerr"
	"github.com/polylet/polylet/services/podsync/internal/cluster/objects"
	"github.com/polylet/polylet/services/podsync/internal/cluster/podcertificate"
	"github.com/polylet/polylet/services/podsync/internal/cluster/serviceaccount"
	"github.com/polylet/polylet/services/podsync/internal/host/apart"
	"github.com/polylet/polylet/services/podsync/internal/podstate"
	"github.com/polylet/polylet/services/podsync/internal/storage/trustbundle"
)

// FromCluster gives an error of something that the apiserver is asked for its cause, as far as
// it has none; nil stays nil.
func FromCluster(err error) error {
	return fromCluster(err).Wrap(err)
}

func fromCluster(err error) podstate.VolumeCause {
	for _, said := range []error{objects.ErrStandalone, objects.ErrNotServed, serviceaccount.ErrStandalone, serviceaccount.ErrTooMany, podcertificate.ErrStandalone, podcertificate.ErrTooMany} {
		if errors.Is(err, said) {
			return podstate.VolumeAsSaid
		}
	}
	switch {
	case apierrors.IsNotFound(err):
		return podstate.VolumeObjectMissing
	case apierrors.IsForbidden(err):
		return podstate.VolumeForbidden
	case apierrors.IsInvalid(err), apierrors.IsBadRequest(err):
		return podstate.VolumeSpec
	}
	return podstate.VolumeAPIServer
}

// ofCertificate gives an error of a pod's certificate its cause.
func ofCertificate(err error) error {
	if status := apierrors.APIStatus(nil); errors.As(err, &status) || fromCluster(err) != podstate.VolumeAPIServer {
		return FromCluster(err)
	}
	return podstate.VolumeCertificate.Wrap(err)
}

// ofBundles gives an error of what a source names of the trust bundles its cause.
func ofBundles(err error) error {
	if trustbundle.IsMissing(err) {
		return podstate.VolumeObjectMissing.Wrap(err)
	}
	return podstate.VolumeSpec.Wrap(err)
}

// ofLocalPath gives an error of a local volume's path its cause, if it is that nothing is there.
// Of what another process has found only the text comes, which ends as the kernel says it.
func ofLocalPath(err error) error {
	for _, absent := range []error{fs.ErrNotExist, syscall.ENOTDIR} {
		if errors.Is(err, absent) {
			return podstate.VolumeLocalPath.Wrap(err)
		}
	}
	for _, words := range []string{syscall.ENOENT.Error(), syscall.ENOTDIR.Error()} {
		if strings.HasSuffix(err.Error(), words) {
			return podstate.VolumeLocalPath.Wrap(err)
		}
	}
	return err
}

// withCause gives an error of a volume's set-up or teardown the cause that can be told from what
// kind of error it is, as far as it has none.
func withCause(err error) error {
	switch {
	case errors.Is(err, rpcerr.ErrInternal):
		return podstate.VolumePanicked.Wrap(err)
	case errors.Is(err, apart.ErrSilent):
		return podstate.VolumeServerSilent.Wrap(err)
	case errors.Is(err, syscall.EBUSY):
		return podstate.VolumeBusy.Wrap(err)
	case errors.Is(err, context.DeadlineExceeded):
		return podstate.VolumeUnderWay.Wrap(err)
	}
	return err
}
