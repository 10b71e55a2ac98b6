// Package machine describes the machine as cAdvisor does: processors, memory,
// filesystems, devices, identity. It keeps the description for a while and
// must never change anything.
package machine

import (
	"fmt"
	"sync"
	"time"

	"github.com/google/cadvisor/lib/fs"
	_ "github.com/google/cadvisor/lib/fs/btrfs/install"   // Filesystems register themselves
	_ "github.com/google/cadvisor/lib/fs/nfs/install"     // with cAdvisor by being imported;
	_ "github.com/google/cadvisor/lib/fs/overlay/install" // zfs is left out, it would run
	_ "github.com/google/cadvisor/lib/fs/tmpfs/install"   // the zfs program.
	_ "github.com/google/cadvisor/lib/fs/vfs/install"
	"github.com/google/cadvisor/lib/machine"
	"github.com/google/cadvisor/lib/model"
	"github.com/google/cadvisor/lib/utils/sysfs"
	"github.com/google/cadvisor/lib/version"
)

// Machine describes the machine. Safe for concurrent use.
type Machine struct {
	maxAge time.Duration

	mu   sync.Mutex
	at   time.Time
	fs   fs.FsInfo
	info *model.MachineInfo
}

// New returns a Machine whose description is renewed when it is older than maxAge.
func New(maxAge time.Duration) *Machine { return &Machine{maxAge: maxAge} }

// Info returns the description, which must not be changed.
func (m *Machine) Info() (*model.MachineInfo, error) {
	info, _, err := m.get()
	return info, err
}

// Filesystems measures all filesystems on disks.
func (m *Machine) Filesystems() ([]fs.Fs, error) {
	_, filesystems, err := m.get()
	if err != nil {
		return nil, err
	}
	all, err := filesystems.GetGlobalFsInfo()
	if err != nil {
		return nil, fmt.Errorf("measure the machine's filesystems: %w", err)
	}
	return all, nil
}

func (m *Machine) get() (*model.MachineInfo, fs.FsInfo, error) {
	m.mu.Lock()
	info, filesystems, fresh := m.info, m.fs, m.info != nil && time.Since(m.at) < m.maxAge
	m.mu.Unlock()
	if fresh {
		return info, filesystems, nil
	}
	// Two callers may both look: that costs milliseconds once, and no lock is
	// held while files are read.
	filesystems, err := fs.NewFsInfo(fs.Context{})
	if err != nil {
		return nil, nil, fmt.Errorf("list the machine's filesystems: %w", err)
	}
	info, err = machine.Info(sysfs.NewRealSysFs(), filesystems, true)
	if err != nil {
		return nil, nil, fmt.Errorf("describe the machine from /proc and /sys: %w", err)
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	m.at, m.fs, m.info = time.Now(), filesystems, info
	return info, filesystems, nil
}

// Version returns the names of the kernel, the operating system and cAdvisor.
func (m *Machine) Version() *model.VersionInfo {
	return &model.VersionInfo{
		KernelVersion: machine.KernelVersion(), ContainerOsVersion: machine.ContainerOsVersion(),
		CadvisorVersion: version.Info["version"], CadvisorRevision: version.Info["revision"],
	}
}

// FilesystemStats measures all filesystems on disks, in cAdvisor's model.
func (m *Machine) FilesystemStats() ([]model.FsStats, error) {
	all, err := m.Filesystems()
	if err != nil {
		return nil, err
	}
	out := make([]model.FsStats, 0, len(all))
	for _, f := range all {
		s := model.FsStats{
			Device: f.Device, Type: f.Type.String(), Limit: f.Capacity, Usage: f.Capacity - f.Free, Available: f.Available,
			ReadsCompleted: f.DiskStats.ReadsCompleted, ReadsMerged: f.DiskStats.ReadsMerged,
			SectorsRead: f.DiskStats.SectorsRead, ReadTime: f.DiskStats.ReadTime,
			WritesCompleted: f.DiskStats.WritesCompleted, WritesMerged: f.DiskStats.WritesMerged,
			SectorsWritten: f.DiskStats.SectorsWritten, WriteTime: f.DiskStats.WriteTime,
			IoInProgress: f.DiskStats.IoInProgress, IoTime: f.DiskStats.IoTime, WeightedIoTime: f.DiskStats.WeightedIoTime,
		}
		if f.Inodes != nil && f.InodesFree != nil {
			s.HasInodes, s.Inodes, s.InodesFree = true, *f.Inodes, *f.InodesFree
		}
		out = append(out, s)
	}
	return out, nil
}
