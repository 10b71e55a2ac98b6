package csi

import (
	"crypto/sha256"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"golang.org/x/sys/unix"
	storagev1 "k8s.io/api/storage/v1"
	"k8s.io/apimachinery/pkg/types"

	"github.com/polylet/polylet/internal/fsatomic"
	"github.com/polylet/polylet/services/podsync/internal/host/beneath"
)

// volumeDataFile lies beside a volume and says what it is, as the kubelet writes it: a
// node may go over from one agent to the other.
const volumeDataFile = "vol_data.json"

// mountName is the volume itself.
const mountName = "mount"

// volumeData is what volumeDataFile holds.
type volumeData struct {
	SpecVolID           string `json:"specVolID"`
	VolumeHandle        string `json:"volumeHandle"`
	DriverName          string `json:"driverName"`
	NodeName            string `json:"nodeName"`
	AttachmentID        string `json:"attachmentID"`
	VolumeLifecycleMode string `json:"volumeLifecycleMode"`
	// SELinuxMountContext is the SELinux label that it is mounted with; empty for none.
	SELinuxMountContext string `json:"seLinuxMountContext,omitempty"`
	// Migrated is "true" beside what is staged of a volume of before CSI: nothing else says so
	// once no pod has it. A kubelet does not write it and reads past it, since it is a string
	// as all that it keeps there.
	Migrated string `json:"migrated,omitempty"`
}

func (d volumeData) id() volumeID { return volumeID{d.DriverName, d.VolumeHandle} }

// persists says whether the volume outlives its pods.
func (d volumeData) persists() bool {
	return d.VolumeLifecycleMode == string(storagev1.VolumeLifecyclePersistent)
}

// ephemeral is that of a volume in a pod's own spec.
func ephemeral(uid types.UID, volume, driver, node string) volumeData {
	handle := fmt.Sprintf("csi-%x", sha256.Sum256([]byte(string(uid)+volume)))
	return volumeData{
		SpecVolID: volume, VolumeHandle: handle, DriverName: driver, NodeName: node,
		AttachmentID:        attachmentID(handle, driver, node),
		VolumeLifecycleMode: string(storagev1.VolumeLifecycleEphemeral),
	}
}

// write puts it beside the volume, which may not be there yet.
func (d volumeData) write(dir string) error { return writeData(dir, d) }

// writeData writes what is to be known of a volume beside it.
func writeData(dir string, data any) error {
	raw, err := json.Marshal(data)
	if err != nil {
		return err
	}
	if err := os.MkdirAll(dir, 0o750); err != nil {
		return err
	}
	return fsatomic.WriteFile(filepath.Join(dir, volumeDataFile), append(raw, '\n'), 0o644)
}

// mostOfVolumeData is how much of the file is read, in bytes.
const mostOfVolumeData = 64 << 10

// errDamaged says that the file is there and says nothing.
var errDamaged = errors.New("it is damaged")

// keptMigrated says whether what is staged, of which that lies in a directory, is a volume of
// before CSI, as far as it can be told.
func keptMigrated(dir string) bool {
	data, err := readVolumeData(dir)
	return err == nil && data.Migrated == isMigratedData
}

// isMigratedData is how volumeData says so.
const isMigratedData = "true"

// readVolumeData reads what lies beside a volume; fs.ErrNotExist when nothing does.
func readVolumeData(dir string) (volumeData, error) {
	path := filepath.Join(dir, volumeDataFile)
	f, err := beneath.Open(dir, path)
	if errors.Is(err, fs.ErrNotExist) {
		return volumeData{}, err
	}
	if noFile(err) {
		return volumeData{}, fmt.Errorf("read %s: %w: %w", path, errDamaged, err)
	}
	if err != nil {
		return volumeData{}, fmt.Errorf("read %s: %w", path, err)
	}
	defer f.Close()
	raw, err := io.ReadAll(io.LimitReader(f, mostOfVolumeData)) // what is longer is damaged
	if err != nil {
		return volumeData{}, fmt.Errorf("read %s: %w", path, err)
	}
	var d volumeData
	if err := json.Unmarshal(raw, &d); err != nil || d.DriverName == "" || d.VolumeHandle == "" {
		return volumeData{}, fmt.Errorf("read %s: %w", path, errDamaged)
	}
	return d, nil
}

// noFile says that something lies in a file's place which is none, or a link that leads nowhere
// in its directory: nobody ever reads it.
func noFile(err error) bool {
	return slices.ContainsFunc([]error{fs.ErrInvalid, unix.ELOOP, unix.EXDEV, unix.ENOTDIR}, func(e error) bool { return errors.Is(err, e) })
}

// unreadable says that what lies beside a volume is damaged, or that its disk does not give it:
// that is its own volume's, and must not hide all others'. What the machine lacks for the
// moment is neither.
func unreadable(err error) bool {
	return !slices.ContainsFunc([]error{unix.EMFILE, unix.ENFILE, unix.ENOMEM, unix.EAGAIN, unix.EINTR}, func(e error) bool { return errors.Is(err, e) })
}
