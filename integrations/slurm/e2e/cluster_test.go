// Package e2e holds tests against a real Slurm: munged, slurmctld and a slurmd for each of a few nodes, started by the
// tests in a folder of their own, with fake devices.
package e2e

import (
	"bytes"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/user"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/stretchr/testify/require"
)

// cluster is a running Slurm.
type cluster struct {
	t   *testing.T
	dir string
	env []string
	up  bool // it has started
}

// find returns the path of a program, which Debian puts where PATH may not look.
func find(name string) (string, bool) {
	if p, err := exec.LookPath(name); err == nil {
		return p, true
	}
	for _, dir := range []string{"/usr/sbin", "/usr/local/sbin", "/sbin"} {
		if p := filepath.Join(dir, name); exec.Command(p, "-V").Run() == nil {
			return p, true
		}
	}
	return "", false
}

// need skips the test where Slurm is not installed, or fails it where REQUIRE_SLURM=1.
func need(t *testing.T) {
	t.Helper()
	for _, name := range []string{"munged", "slurmctld", "slurmd", "squeue", "sinfo", "scontrol", "sbatch", "scancel"} {
		if _, ok := find(name); ok {
			continue
		}
		if os.Getenv("REQUIRE_SLURM") == "1" {
			t.Fatalf("%s is not installed, and REQUIRE_SLURM=1", name)
		}
		t.Skipf("%s is not installed: apt-get install slurmctld slurmd slurm-client munge", name)
	}
}

// ports returns n free ports in a row.
func ports(t *testing.T, n int) int {
	t.Helper()
next:
	for base := 21000; base < 31000; base += n {
		for i := range n {
			l, err := net.Listen("tcp", fmt.Sprintf("127.0.0.1:%d", base+i))
			if err != nil {
				continue next
			}
			_ = l.Close()
		}
		return base
	}
	t.Fatal("no free ports")
	return 0
}

const devices = 8

// start starts a cluster of n nodes with 8 devices each, two leaf switches and two partitions.
func start(t *testing.T, n int) *cluster {
	t.Helper()
	need(t)
	dir, err := os.MkdirTemp("/tmp", "lockstep-slurm-") // the path of a socket is short
	require.NoError(t, err)
	t.Cleanup(func() { _ = os.RemoveAll(dir) })
	c := &cluster{t: t, dir: dir, env: append(os.Environ(), "SLURM_CONF="+dir+"/slurm.conf")}
	c.configure(n)
	c.spawn("munged", "--force", "--foreground", "--socket="+dir+"/munge.sock", "--key-file="+dir+"/munge.key",
		"--log-file="+dir+"/munged.log", "--pid-file="+dir+"/munged.pid", "--seed-file="+dir+"/munge.seed")
	c.until("munge", 10*time.Second, func() bool { _, err := os.Stat(dir + "/munge.sock"); return err == nil })
	c.spawn("slurmctld", "-D", "-c", "-f", dir+"/slurm.conf")
	for i := range n {
		c.spawn("slurmd", "-D", "-N", node(i), "-f", dir+"/slurm.conf")
	}
	t.Cleanup(func() { // before the daemons are stopped, or steps would outlive them
		_, _ = c.try("scancel", "--full", "--user="+me(t))
		_, _ = c.try("scancel", "--full")
		end := time.Now().Add(20 * time.Second)
		for time.Now().Before(end) {
			out, err := c.try("squeue", "--noheader", "--states=RUNNING,COMPLETING,CONFIGURING,SUSPENDED")
			if err != nil || len(bytes.TrimSpace(out)) == 0 {
				return
			}
			time.Sleep(200 * time.Millisecond)
		}
		t.Log("jobs are left")
	})
	c.until("nodes", 60*time.Second, func() bool {
		out, err := c.try("sinfo", "--noheader", "--Node", "--partition=main", "--format=%T")
		return err == nil && strings.Count(string(out), "idle\n") == n
	})
	c.up = true
	return c
}

func node(i int) string { return fmt.Sprintf("n%02d", i+1) }

func me(t *testing.T) string {
	u, err := user.Current()
	require.NoError(t, err)
	return u.Username
}

func (c *cluster) write(name, text string) {
	require.NoError(c.t, os.WriteFile(filepath.Join(c.dir, name), []byte(text), 0o600))
}

func (c *cluster) configure(n int) {
	host, err := os.Hostname()
	require.NoError(c.t, err)
	host, _, _ = strings.Cut(host, ".")
	base := ports(c.t, n+1)
	for i := range devices {
		c.write(fmt.Sprintf("gpu%d", i), "")
	}
	for _, d := range []string{"state", "spool"} {
		require.NoError(c.t, os.Mkdir(filepath.Join(c.dir, d), 0o755))
	}
	require.NoError(c.t, os.Chmod(c.dir, 0o755))
	if out, err := c.try("slurmctld", "-V"); err == nil && !strings.Contains(string(out), " 22.") { // of which 22.05 does not know
		c.write("cgroup.conf", "CgroupPlugin=disabled\n")
	}
	c.write("munge.key", strings.Repeat("not a secret, of a test's own cluster\n", 4))
	last := node(n - 1)
	c.write("slurm.conf", fmt.Sprintf(`ClusterName=lockstep
SlurmctldHost=%[2]s(127.0.0.1)
SlurmctldPort=%[3]d
SlurmUser=%[4]s
SlurmdUser=%[4]s
AuthType=auth/munge
AuthInfo=socket=%[1]s/munge.sock
StateSaveLocation=%[1]s/state
SlurmdSpoolDir=%[1]s/spool/%%n
SlurmctldPidFile=%[1]s/slurmctld.pid
SlurmdPidFile=%[1]s/slurmd.%%n.pid
SlurmctldLogFile=%[1]s/slurmctld.log
SlurmdLogFile=%[1]s/slurmd.%%n.log
ProctrackType=proctrack/pgid
TaskPlugin=task/none
JobAcctGatherType=jobacct_gather/none
AccountingStorageType=accounting_storage/none
MpiDefault=none
ReturnToService=2
SchedulerType=sched/backfill
SchedulerParameters=bf_interval=1,bf_window=1440,sched_interval=2,default_queue_depth=1000
PriorityType=priority/multifactor
SelectType=select/cons_tres
SelectTypeParameters=CR_Core_Memory
DefMemPerCPU=100
TopologyPlugin=topology/tree
GresTypes=gpu
MinJobAge=300
KillWait=1
SlurmdParameters=config_overrides
NodeName=n[01-%02[5]d] NodeAddr=127.0.0.1 NodeHostname=%[2]s Port=[%[6]d-%[7]d] CPUs=64 Boards=1 SocketsPerBoard=2 CoresPerSocket=32 RealMemory=100000 Gres=gpu:a100:8 Feature=a100,ib
PartitionName=main Nodes=ALL Default=YES State=UP
PartitionName=short Nodes=n01,%[8]s State=UP MaxTime=60
`, c.dir, host, base, me(c.t), n, base+1, base+n, last))
	c.write("gres.conf", fmt.Sprintf("NodeName=n[01-%02d] Name=gpu Type=a100 File=%s/gpu[0-%d]\n", n, c.dir, devices-1))
	c.write("topology.conf", fmt.Sprintf("SwitchName=leaf1 Nodes=n[01-%02d]\nSwitchName=leaf2 Nodes=n[%02d-%02d]\nSwitchName=core Switches=leaf[1-2]\n", n/2, n/2+1, n))
}

// spawn starts a daemon that ends with the test.
func (c *cluster) spawn(name string, args ...string) {
	path, _ := find(name)
	cmd := exec.Command(path, args...)
	cmd.Env = c.env
	var said bytes.Buffer
	cmd.Stderr = &said
	require.NoError(c.t, cmd.Start())
	c.t.Cleanup(func() {
		_ = cmd.Process.Signal(syscall.SIGTERM)
		late := time.AfterFunc(10*time.Second, func() { _ = cmd.Process.Kill() })
		_ = cmd.Wait()
		late.Stop()
		if c.t.Failed() {
			c.t.Logf("%s %v: %s", name, args, said.String())
		}
	})
}

func (c *cluster) try(name string, args ...string) ([]byte, error) {
	path, _ := find(name)
	cmd := exec.Command(path, args...)
	cmd.Env = c.env
	var said bytes.Buffer
	cmd.Stderr = &said
	out, err := cmd.Output()
	if err != nil {
		err = fmt.Errorf("%s %s: %w: %s", name, strings.Join(args, " "), err, said.String())
	}
	return out, err
}

func (c *cluster) run(name string, args ...string) string {
	c.t.Helper()
	out, err := c.try(name, args...)
	require.NoError(c.t, err)
	return string(out)
}

// submit submits a job that sleeps and returns its number.
func (c *cluster) submit(seconds string, args ...string) string {
	c.t.Helper()
	all := append([]string{"--parsable", "--output=/dev/null", "--error=/dev/null", "--chdir=/"}, args...)
	return strings.TrimSpace(c.run("sbatch", append(all, "--wrap=sleep "+seconds)...))
}

// until waits for something that the real cluster does in its own time.
func (c *cluster) until(what string, limit time.Duration, done func() bool) {
	c.t.Helper()
	for end := time.Now().Add(limit); !done(); time.Sleep(100 * time.Millisecond) {
		if time.Now().After(end) {
			for _, log := range []string{"slurmctld.log", "slurmd.n01.log", "munged.log"} {
				if data, err := os.ReadFile(filepath.Join(c.dir, log)); err == nil {
					c.t.Logf("%s:\n%s", log, data[max(0, len(data)-3000):])
				}
			}
			if !c.up && os.Getenv("REQUIRE_SLURM") != "1" {
				c.t.Skipf("Slurm is installed and does not start on this machine: %s: not within %v", what, limit)
			}
			c.t.Fatalf("%s: not within %v", what, limit)
		}
	}
}
