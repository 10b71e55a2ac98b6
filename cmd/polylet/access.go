package main

import (
	"k8s.io/klog/v2"
	podsv1alpha1 "k8s.io/kubelet/pkg/apis/pods/v1alpha1"

	gatewayv1 "github.com/polylet/polylet/api/gen/polylet/gateway/v1"
	nodestatusv1 "github.com/polylet/polylet/api/gen/polylet/nodestatus/v1"
	podsyncv1 "github.com/polylet/polylet/api/gen/polylet/podsync/v1"
	probesv1 "github.com/polylet/polylet/api/gen/polylet/probes/v1"
	statsv1 "github.com/polylet/polylet/api/gen/polylet/stats/v1"
	"github.com/polylet/polylet/internal/daemon"
	"github.com/polylet/polylet/internal/kubeletconfig"
	"github.com/polylet/polylet/internal/rpc"
	"github.com/polylet/polylet/internal/service"
)

// accessTo says who may call which RPC of a service, beside root and what
// every process answers (internal/daemon). A method that is missing here keeps
// the service from starting; testdata/access.txt lists the whole.
func accessTo(name string) map[string]daemon.Access {
	// What only the apiserver's admission protects goes through the gateway, or
	// is root's.
	gateway := daemon.Access{Services: []string{service.Gateway}}
	readers := daemon.Access{Services: []string{service.Gateway}, People: true}
	probes := daemon.Access{Services: []string{service.Probes}}
	stats := daemon.Access{Services: []string{service.Stats}}
	nodestatus := daemon.Access{Services: []string{service.Nodestatus}}
	return map[string]map[string]daemon.Access{
		service.Podsync: {
			podsyncv1.PodSyncService_ListDesiredPods_FullMethodName:     {Services: []string{service.Gateway, service.Nodestatus}, People: true},
			podsyncv1.PodSyncService_ListRuntimePods_FullMethodName:     readers,
			podsyncv1.PodSyncService_WatchContainers_FullMethodName:     {Services: stats.Services, People: true},
			podsyncv1.PodSyncService_ListFilesystemUsage_FullMethodName: {Services: stats.Services, People: true},
			podsyncv1.PodSyncService_GetVolumeUsage_FullMethodName:      {Services: stats.Services, People: true},
			podsyncv1.PodSyncService_ListVolumes_FullMethodName:         {People: true},
			podsyncv1.PodSyncService_GetRuntime_FullMethodName:          {Services: nodestatus.Services, People: true},
			podsyncv1.PodSyncService_WatchCSIDrivers_FullMethodName:     {Services: nodestatus.Services, People: true},
			podsyncv1.PodSyncService_WatchVolumesInUse_FullMethodName:   {Services: nodestatus.Services, People: true},
			podsyncv1.PodSyncService_ListImages_FullMethodName:          {Services: nodestatus.Services, People: true},
			podsyncv1.PodSyncService_ReadLogs_FullMethodName:            readers,
			podsyncv1.PodSyncService_ExplainPod_FullMethodName:          readers,
			podsyncv1.PodSyncService_ListWaits_FullMethodName:           readers,
			podsyncv1.PodSyncService_ListRecentEvents_FullMethodName:    readers,
			podsv1alpha1.Pods_GetPod_FullMethodName:                     readers,
			podsv1alpha1.Pods_ListPods_FullMethodName:                   {Services: []string{service.Gateway, service.Nodestatus}, People: true},
			podsv1alpha1.Pods_WatchPods_FullMethodName:                  {Services: []string{service.Gateway, service.Nodestatus}, People: true},

			podsyncv1.PodSyncService_SyncProbes_FullMethodName: probes,
			podsyncv1.PodSyncService_ExecProbe_FullMethodName:  probes,

			podsyncv1.PodSyncService_StopPod_FullMethodName:     nodestatus,
			podsyncv1.PodSyncService_SetPressure_FullMethodName: nodestatus,
			podsyncv1.PodSyncService_Reclaim_FullMethodName:     nodestatus,
			podsyncv1.PodSyncService_SetShutdown_FullMethodName: nodestatus,

			podsyncv1.PodSyncService_ExecSync_FullMethodName:            gateway,
			podsyncv1.PodSyncService_OpenExec_FullMethodName:            gateway,
			podsyncv1.PodSyncService_HoldExec_FullMethodName:            gateway,
			podsyncv1.PodSyncService_OpenAttach_FullMethodName:          gateway,
			podsyncv1.PodSyncService_OpenPortForward_FullMethodName:     gateway,
			podsyncv1.PodSyncService_CheckpointContainer_FullMethodName: gateway,
		},
		service.Probes: {
			probesv1.ProbesService_ListProbes_FullMethodName: readers,
		},
		service.Stats: {
			statsv1.StatsService_GetSummary_FullMethodName:        {Services: []string{service.Gateway, service.Nodestatus}, People: true},
			statsv1.StatsService_GetMachine_FullMethodName:        {Services: []string{service.Gateway, service.Nodestatus}, People: true},
			statsv1.StatsService_GetMetricsText_FullMethodName:    readers,
			statsv1.StatsService_WatchSignals_FullMethodName:      {Services: nodestatus.Services, People: true},
			statsv1.StatsService_WatchOOMKills_FullMethodName:     {Services: nodestatus.Services, People: true},
			statsv1.StatsService_ListUnlinkedFiles_FullMethodName: {Services: nodestatus.Services, People: true},
		},
		service.Nodestatus: {
			nodestatusv1.NodeStatusService_GetNode_FullMethodName:               readers,
			nodestatusv1.NodeStatusService_GetLease_FullMethodName:              readers,
			nodestatusv1.NodeStatusService_ListRecentEvents_FullMethodName:      readers,
			nodestatusv1.NodeStatusService_ListEvictionDecisions_FullMethodName: readers,
			nodestatusv1.NodeStatusService_StatNodeLog_FullMethodName:           gateway,
			nodestatusv1.NodeStatusService_ReadNodeLog_FullMethodName:           gateway,
			nodestatusv1.NodeStatusService_QueryNodeLogs_FullMethodName:         gateway,
			nodestatusv1.NodeStatusService_ReviewToken_FullMethodName:           gateway,
			nodestatusv1.NodeStatusService_ReviewAccess_FullMethodName:          gateway,
			// The owner of the configuration is root.
			nodestatusv1.NodeStatusService_WatchAssignedConfiguration_FullMethodName: {},
			nodestatusv1.NodeStatusService_AskApiserver_FullMethodName:               {},
		},
		service.Gateway: {
			gatewayv1.GatewayService_ListListeners_FullMethodName: readers,
		},
	}[name]
}

// serviceUsers are the numbers of the users that the services run as.
func serviceUsers(loaded *kubeletconfig.Loaded) rpc.Users {
	names := map[string]string{}
	for _, name := range service.All() {
		names[name] = loaded.ServiceUser(name)
	}
	users, missing := rpc.LookupUsers(names)
	for _, name := range missing {
		klog.Background().Info("A user that a service should run as does not exist; it may call nothing", "user", name)
	}
	return users
}
