// Kwok-stages prints what kwok does with nodes and pods, as a file for its --config.
//
// Kwok itself does nothing without such a file; upstream delivers it beside the
// program. These stages make every node ready, renew its lease, run every pod at
// once and complete those of jobs.
package main

import (
	"fmt"
	"strings"

	nodes "sigs.k8s.io/kwok/kustomize/stage/node/fast"
	leases "sigs.k8s.io/kwok/kustomize/stage/node/heartbeat-with-lease"
	pods "sigs.k8s.io/kwok/kustomize/stage/pod/fast"
)

func main() {
	stages := []string{
		nodes.DefaultNodeInit,
		leases.DefaultNodeHeartbeatWithLease,
		pods.DefaultPodReady,
		pods.DefaultPodComplete,
		pods.DefaultPodDelete,
	}
	fmt.Print(strings.Join(stages, "\n---\n"))
}
