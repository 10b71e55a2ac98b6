package daemon

import (
	channelz "google.golang.org/grpc/channelz/grpc_channelz_v1"
	healthgrpc "google.golang.org/grpc/health/grpc_health_v1"
	reflectionv1 "google.golang.org/grpc/reflection/grpc_reflection_v1"
	reflectionv1alpha "google.golang.org/grpc/reflection/grpc_reflection_v1alpha"

	commonv1 "github.com/polylet/polylet/api/gen/polylet/common/v1"
	"github.com/polylet/polylet/internal/service"
)

// commonAccess says who may call what every process answers. The gateway asks
// for whoever the apiserver has let in; people read by themselves, reflection
// for grpcurl included. channelz, which shows every connection, is root's.
func commonAccess() map[string]Access {
	gateway := Access{Services: []string{service.Gateway}}
	readers := Access{Services: []string{service.Gateway}, People: true}
	people := Access{People: true}
	return map[string]Access{
		commonv1.CommonService_GetInfo_FullMethodName:     readers,
		commonv1.CommonService_GetMetrics_FullMethodName:  readers,
		commonv1.CommonService_GetConfig_FullMethodName:   readers,
		commonv1.CommonService_CheckHealth_FullMethodName: readers,
		commonv1.CommonService_SetLogLevel_FullMethodName: gateway,
		commonv1.CommonService_GetProfile_FullMethodName:  gateway,

		healthgrpc.Health_Check_FullMethodName: readers,
		healthgrpc.Health_List_FullMethodName:  readers,
		healthgrpc.Health_Watch_FullMethodName: readers,

		reflectionv1.ServerReflection_ServerReflectionInfo_FullMethodName:      people,
		reflectionv1alpha.ServerReflection_ServerReflectionInfo_FullMethodName: people,

		channelz.Channelz_GetTopChannels_FullMethodName:   {},
		channelz.Channelz_GetServers_FullMethodName:       {},
		channelz.Channelz_GetServer_FullMethodName:        {},
		channelz.Channelz_GetServerSockets_FullMethodName: {},
		channelz.Channelz_GetChannel_FullMethodName:       {},
		channelz.Channelz_GetSubchannel_FullMethodName:    {},
		channelz.Channelz_GetSocket_FullMethodName:        {},
	}
}
