package main

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"
)

const head = `# Metrics

Written by ` + "`make docs`" + ` from what each process registers; a test fails when this page is old. Do not edit it: reasons are in metrics/absent.tsv.

Names, types, labels and buckets are those of a kubelet 1.36, so that its dashboards, alerts and recording rules work. What differs:

- ` + "`/metrics`" + ` is the union of five processes. Families that each of them has (` + "`go_*`, `process_*`, `rest_client_*`, `workqueue_*`, `polylet_build_info`, `polylet_dependency_ready`" + `) carry the label ` + "`service`" + `: sum over it where a kubelet has one series.
- A process that is away takes its families away and fails nothing: ` + "`polylet_up{service}`" + ` is 0 then.
- ` + "`kubelet_pod_worker_duration_seconds`" + ` is one round of a pod's worker (create, sync, kill) without the actions that it starts, which run beside it.
- ` + "`kubelet_volume_metric_collection_duration_seconds{metric_source}`" + ` is filesystem, directory, fsquota, the name of a CSI driver, or kubernetes.io/nfs: what was asked, not which plugin.
- ` + "`kubelet_volume_stats_*`" + ` are of claims: those that are bound to a hostPath have none, as on a kubelet.
- ` + "`kubelet_certificate_manager_server_ttl_seconds`" + ` is that of the certificate that is shown, a self-signed one too.
- ` + "`storage_operation_duration_seconds`" + ` has volume_mount, map_volume, volume_unmount, unmap_volume and volume_fs_resize, and unmount_device and unmap_device of CSI drivers' volumes; ` + "`migrated`" + ` is true of volumes of before CSI in all of them, of which a kubelet says false of volume_fs_resize and, of what was staged before it started, of unmount_device; there is no attaching, and volume_apply_access_control is a part of volume_mount.
- ` + "`volume_operation_total_seconds`" + ` (overall_volume_mount) has each volume of a pod once, with the time from when it was first wanted; a kubelet counts each remount again, from that same time.
- ` + "`kubernetes_build_info{git_commit}`" + ` is polylet's commit.
- ` + "`container_cpu_load_average_10s`, `container_cpu_load_d_average_10s` and `container_tasks_state`" + ` of ` + "`/metrics/cadvisor`" + ` are not there: a kubelet serves them and never reads what they tell, they are 0 always.
- Label values that a container, a pod or a client makes up have a bounded number of series: exit codes outside of 0 to 255 and unusual reasons are ` + "`other`" + `, so are unknown paths and methods of requests; at most 64 interfaces of one sandbox are shown.
`

// document makes docs/metrics.md, or says what disagrees.
func document(root string) ([]byte, error) {
	have, err := read(root)
	if err != nil {
		return nil, err
	}
	wanted, err := table(filepath.Join(root, "docs", "metrics", "kubelet.tsv"), 5)
	if err != nil {
		return nil, err
	}
	absent, err := table(filepath.Join(root, "docs", "metrics", "absent.tsv"), 2)
	if err != nil {
		return nil, err
	}
	if err := check(have, wanted, absent); err != nil {
		return nil, err
	}
	var out strings.Builder
	out.WriteString(head)
	for _, endpoint := range slices.Sorted(maps.Keys(have)) {
		fmt.Fprintf(&out, "\n## %s\n\n| metric | type | labels | process |\n|---|---|---|---|\n", endpoint)
		for _, name := range slices.Sorted(maps.Keys(have[endpoint])) {
			f := have[endpoint][name]
			fmt.Fprintf(&out, "| %s | %s | %s | %s |\n", f.name, f.kind, strings.ReplaceAll(f.labels, ",", ", "), f.source)
		}
	}
	out.WriteString("\nBeside these, `/metrics` has `polylet_up{service}`, `go_*` and `process_*` of each process.\n")
	out.WriteString("\n## The kubelet's that are not there\n\n| metric | why |\n|---|---|\n")
	for _, row := range absent {
		fmt.Fprintf(&out, "| %s | %s |\n", strings.ReplaceAll(row[0], "*", `\*`), row[1])
	}
	return []byte(out.String()), nil
}

// check compares what is there with the kubelet's list and with the reasons.
func check(have map[string]map[string]family, wanted, absent [][]string) error {
	var errs []error
	used, known := map[string]bool{}, map[string]bool{}
	for _, row := range wanted {
		endpoint, name := row[0], row[1]
		known[endpoint+" "+name] = true
		reason := reasonFor(name, absent)
		f, there := have[endpoint][name]
		switch {
		case there && reason != "":
			errs = append(errs, fmt.Errorf("%s %s is there: take %q out of docs/metrics/absent.tsv", endpoint, name, reason))
		case !there && reason == "":
			errs = append(errs, fmt.Errorf("%s %s is not there: export it, or say why not in docs/metrics/absent.tsv", endpoint, name))
		case there:
			errs = append(errs, compare(f, row))
		default:
			used[reason] = true
		}
	}
	for _, row := range absent {
		if !used[row[0]] {
			errs = append(errs, fmt.Errorf("docs/metrics/absent.tsv explains %s, which is not missing", row[0]))
		}
	}
	for endpoint, families := range have {
		for name := range families {
			if !known[endpoint+" "+name] && !strings.HasPrefix(name, "polylet_") && endpoint != "/metrics/cadvisor" && name != "process_start_time_seconds" {
				errs = append(errs, fmt.Errorf("%s %s is not a metric of the kubelet; call it polylet_…", endpoint, name))
			}
		}
	}
	return errors.Join(errs...)
}

func compare(f family, row []string) error {
	if f.kind != row[2] || f.labels != row[3] || !sameBuckets(f.buckets, row[4]) {
		return fmt.Errorf("%s is %s {%s} [%s]; the kubelet's is %s {%s} [%s]", f.name, f.kind, f.labels, f.buckets, row[2], row[3], row[4])
	}
	return nil
}

// reasonFor returns the name or pattern that explains a name's absence.
func reasonFor(name string, absent [][]string) string {
	for _, row := range absent {
		if ok, err := path.Match(row[0], name); err == nil && ok {
			return row[0]
		}
	}
	return ""
}
