// Kube is a whole Kubernetes node in one executable file.
//
// The six programs share most of their code, so one file of 140 MB takes the
// place of six that are 500 MB together, is linked once, and is in the page
// cache once however many nodes run it.
//
// It acts as the program under whose name it is called. The symbolic links
// beside it have these names; "kube kubelet --help" does the same without one.
package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	// The time zones of CronJobs, which a node's root file system need not have.
	_ "time/tzdata"

	"k8s.io/component-base/cli"
	"k8s.io/component-base/logs"
	"k8s.io/kubectl/pkg/cmd"
	"k8s.io/kubectl/pkg/cmd/util"

	apiserver "k8s.io/kubernetes/cmd/kube-apiserver/app"
	controllers "k8s.io/kubernetes/cmd/kube-controller-manager/app"
	proxy "k8s.io/kubernetes/cmd/kube-proxy/app"
	scheduler "k8s.io/kubernetes/cmd/kube-scheduler/app"
	kubelet "k8s.io/kubernetes/cmd/kubelet/app"

	// What the programs' own main packages add: logins of kubectl, logs in JSON,
	// and the metrics of the API client and of the version.
	_ "k8s.io/client-go/plugin/pkg/client/auth"
	_ "k8s.io/component-base/logs/json/register"
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
)

// self is the name under which the program's own name is the first argument.
const self = "kube"

// programs are functions, because a command registers its flags and metrics as
// it is made, and those of two programs would clash.
var programs = map[string]func() int{
	"kube-apiserver":          func() int { return cli.Run(apiserver.NewAPIServerCommand()) },
	"kube-controller-manager": func() int { return cli.Run(controllers.NewControllerManagerCommand()) },
	"kube-scheduler":          func() int { return cli.Run(scheduler.NewSchedulerCommand()) },
	"kube-proxy":              func() int { return cli.Run(proxy.NewProxyCommand()) },
	"kubelet":                 func() int { return cli.Run(kubelet.NewKubeletCommand(context.Background())) },
	"kubectl":                 kubectl,
}

func main() {
	// The programs read os.Args themselves: for messages, and kubectl for plugins.
	if filepath.Base(os.Args[0]) == self && len(os.Args) > 1 {
		os.Args = os.Args[1:]
	}
	name := filepath.Base(os.Args[0])
	run, known := programs[name]
	if !known {
		names := slices.Sorted(maps.Keys(programs))
		fmt.Fprintf(os.Stderr, "%s: there is no program %q here, only %s\n", self, name, strings.Join(names, ", "))
		os.Exit(2)
	}
	os.Exit(run())
}

// kubectl differs from the others: it shows errors in the form that people know,
// and it logs while the command is made, before flags are parsed.
func kubectl() int {
	// Fails on a malformed -v, which the command then reports.
	_, _ = logs.GlogSetter(cmd.GetLogVerbosity(os.Args))
	if err := cli.RunNoErrOutput(cmd.NewDefaultKubectlCommand()); err != nil {
		util.CheckErr(err) // Does not return.
	}
	return 0
}
