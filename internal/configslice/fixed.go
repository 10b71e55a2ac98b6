package configslice

// What to do about a field that cannot change while the node runs.
const (
	drained   = "drain the node, change it, and start polylet again"
	restarted = "start polylet again with it"
)

// Fixed are the fields that a running node cannot change, with the reason and what to
// do. What is not here goes with a restart of its owners, by which no pod is touched.
func Fixed() map[string]string {
	out := map[string]string{}
	add := func(reason, mend string, paths ...string) {
		for _, path := range paths {
			out[path] = reason + "; " + mend
		}
	}
	add("the cgroups of running pods have been made in another way", drained, "cgroupDriver", "cgroupRoot", "cgroupsPerQOS")
	add("the running containers are another runtime's", drained, "containerRuntimeEndpoint")
	add("the running containers write their logs to the old place", drained, "podLogsDir")
	add("the running pods have user IDs of the old size", drained, "userNamespaces.idsPerPod")
	add("the pods of the old place would end at once, and a way back would not bring them back as they were", restarted, "staticPodPath", "staticPodURL")
	add("running pods have been given processors and memory by the old policy", drained,
		"cpuManagerPolicy", "cpuManagerPolicyOptions", "memoryManagerPolicy", "reservedMemory", "topologyManagerPolicy", "topologyManagerScope", "topologyManagerPolicyOptions")
	add("polylet run sets it for itself and all services when it starts", restarted, "kubeletCgroups", "oomScoreAdj", "maxOpenFiles")
	add("polylet run has asked the machine for that delay when it started", restarted, "shutdownGracePeriod", "shutdownGracePeriodCriticalPods", "shutdownGracePeriodByPodPriority",
		"featureGates.GracefulNodeShutdown", "featureGates.GracefulNodeShutdownBasedOnPodPriority")
	add("polylet run prepares the directories of certificates when it starts", restarted, "rotateCertificates", "serverTLSBootstrap", "featureGates.RotateKubeletServerCertificate")
	return out
}
