//go:build linux

package criu

import (
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/checkpoint-restore/go-criu/v8/rpc"
	"github.com/stretchr/testify/require"
)

// The tests' CRIU is this test program again: a script named criu runs it with these variables.
const (
	roleVariable = "LOCKSTEP_FAKE_CRIU"      // what it does
	holdVariable = "LOCKSTEP_FAKE_CRIU_GO"   // a file to wait for
	optsVariable = "LOCKSTEP_FAKE_CRIU_OPTS" // a file for the options that it got
	exitBroken   = 3
)

func TestMain(m *testing.M) {
	if role := os.Getenv(roleVariable); role != "" && len(os.Args) > 1 {
		os.Exit(fake(role, os.Args[1:]))
	}
	os.Exit(m.Run())
}

// fake does what CRIU does, as far as its callers can see.
func fake(role string, args []string) int {
	switch {
	case args[0] == "--version":
		if role == "broken" {
			return exitBroken
		}
		fmt.Println("Version: 4.2")
		return 0
	case args[0] == "check":
		if strings.HasPrefix(role, "unfit") {
			fmt.Println("Warn  (x.c:1): something\nError (criu/vdso.c:613): vdso: Unexpected rt vDSO area bounds")
			fmt.Println("Error (criu/crtools.c:260): Could not initialize kernel features detection.") // what came of it stands last
			return 1
		}
		fmt.Println("Looks good.")
		return 0
	case args[0] == "swrk" && len(args) == 2:
		return swrk(role, args[1])
	}
	return exitBroken
}

// swrk answers one request on a socket.
func swrk(role, fd string) int {
	n, err := strconv.Atoi(fd)
	if err != nil {
		return exitBroken
	}
	syscall.CloseOnExec(n) // a process that is restored must not keep it
	f := os.NewFile(uintptr(n), "swrk")
	c, err := net.FileConn(f)
	if err != nil {
		return exitBroken
	}
	defer c.Close()
	buf := make([]byte, 1<<16)
	k, err := c.Read(buf)
	if err != nil {
		return exitBroken
	}
	var req rpc.CriuReq
	if err := req.UnmarshalVT(buf[:k]); err != nil {
		return exitBroken
	}
	if path := os.Getenv(optsVariable); path != "" {
		b, err := req.GetOpts().MarshalVT()
		if err != nil || os.WriteFile(path, b, 0o600) != nil {
			return exitBroken
		}
	}
	dir := fmt.Sprintf("/proc/%d/fd/%d", os.Getppid(), req.GetOpts().GetImagesDirFd())
	switch role {
	case "unfit-fails":
		return exitBroken
	case "garbage":
		_, _ = c.Write([]byte("\xff\xfe not protobuf"))
		return 0
	case "crash":
		_ = os.WriteFile(filepath.Join(dir, "pages-1.img"), []byte("half"), 0o600)
		return exitBroken
	case "hold":
		_ = os.WriteFile(os.Getenv(holdVariable)+".on", nil, 0o600)
		for { // until the test lets it go on
			if _, err := os.Stat(os.Getenv(holdVariable)); err == nil {
				break
			}
			time.Sleep(time.Millisecond)
		}
	}
	if text, ok := strings.CutPrefix(role, "fails:"); ok {
		log := filepath.Join(dir, req.GetOpts().GetLogFile())
		_ = os.WriteFile(log, []byte("(00.1) begin\n(00.2) Error (criu/a.c:1): "+text+"\n"), 0o600)
		return answer(c, &rpc.CriuResp{Type: req.Type, Success: ptr(false), CrErrno: ptr(int32(5))})
	}
	if req.GetType() == rpc.CriuReqType_DUMP {
		if role == "kills" {
			_ = syscall.Kill(int(req.GetOpts().GetPid()), syscall.SIGKILL)
			for !dead(letter(int(req.GetOpts().GetPid()))) { // the kernel takes a moment
				time.Sleep(time.Millisecond)
			}
			return answer(c, &rpc.CriuResp{Type: req.Type, Success: ptr(true)})
		}
		return dump(c, dir, &req)
	}
	return restore(c, role, dir, &req)
}

func answer(c net.Conn, r *rpc.CriuResp) int {
	b, err := r.MarshalVT()
	if err != nil {
		return exitBroken
	}
	if _, err := c.Write(b); err != nil {
		return exitBroken
	}
	return 0
}

// dump writes files like CRIU's: the command line of the target is all that this one can start again.
func dump(c net.Conn, dir string, req *rpc.CriuReq) int {
	if !req.GetOpts().GetLeaveRunning() {
		return exitBroken
	}
	line, err := os.ReadFile(fmt.Sprintf("/proc/%d/cmdline", req.GetOpts().GetPid()))
	if err != nil {
		return exitBroken
	}
	for name, data := range map[string][]byte{"pages-1.img": line, "core-1.img": []byte("core"), "dump.log": []byte("fine")} { // order cannot matter
		if err := os.WriteFile(filepath.Join(dir, name), data, 0o600); err != nil {
			return exitBroken
		}
	}
	return answer(c, &rpc.CriuResp{Type: req.Type, Success: ptr(true)})
}

// restore starts the command again, as a child of the caller's as the real one does.
func restore(c net.Conn, role, dir string, req *rpc.CriuReq) int {
	line, err := os.ReadFile(filepath.Join(dir, "pages-1.img"))
	if err != nil || !req.GetOpts().GetRstSibling() {
		return exitBroken
	}
	pid := 0
	if role != "ghost" {
		argv := strings.Split(strings.TrimSuffix(string(line), "\x00"), "\x00")
		path, err := exec.LookPath(argv[0])
		if err != nil {
			return exitBroken
		}
		// CLONE_PARENT: the new process is a sibling of this one.
		if pid, err = syscall.ForkExec(path, argv, &syscall.ProcAttr{Env: os.Environ(), Sys: &syscall.SysProcAttr{Cloneflags: syscall.CLONE_PARENT}}); err != nil {
			return exitBroken
		}
	} else {
		pid = 1 << 22 // above every pid
	}
	b, err := (&rpc.CriuResp{
		Type: ptr(rpc.CriuReqType_NOTIFY), Success: ptr(true), Notify: &rpc.CriuNotify{Script: ptr("post-restore"), Pid: ptr(int32(pid))},
	}).MarshalVT()
	if err != nil {
		return exitBroken
	}
	if _, err := c.Write(b); err != nil {
		return exitBroken
	}
	if _, err := c.Read(make([]byte, 1<<12)); err != nil { // the caller has seen it
		return exitBroken
	}
	if role == "late" {
		return exitBroken
	}
	return answer(c, &rpc.CriuResp{Type: req.Type, Success: ptr(true), Restore: &rpc.CriuRestoreResp{Pid: ptr(int32(pid))}})
}

// program makes a criu that plays a role and returns its path.
func program(t *testing.T, role string, more ...string) string {
	t.Helper()
	self, err := os.Executable()
	require.NoError(t, err)
	path := filepath.Join(t.TempDir(), "criu")
	script := "#!/bin/sh\nGORACE=atexit_sleep_ms=0 " + roleVariable + "='" + role + "' " + strings.Join(more, " ") + " exec '" + self + "' \"$@\"\n"
	require.NoError(t, os.WriteFile(path, []byte(script), 0o700))
	return path
}
