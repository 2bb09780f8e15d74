// Kube-scheduler with the plugin Lockstep beside those that it comes with. Its flags
// and its configuration are those of kube-scheduler; see the folder deploy/plugin for
// a configuration in which the plugin decides.
package main

import (
	"os"

	"k8s.io/component-base/cli"
	_ "k8s.io/component-base/logs/json/register" // for --logging-format=json
	_ "k8s.io/component-base/metrics/prometheus/clientgo"
	_ "k8s.io/component-base/metrics/prometheus/version"
	"k8s.io/kubernetes/cmd/kube-scheduler/app"

	"github.com/lockstep-gpu/lockstep/integrations/kubernetes/plugin"
)

func main() {
	os.Exit(cli.Run(app.NewSchedulerCommand(app.WithPlugin(plugin.Name, plugin.New))))
}
