package main

import (
	"fmt"
	"os/exec"
)

// tool is one way to keep images.
type tool struct {
	name    string
	program string // what has to be installed; "" for ours
	ours    bool
	sealed  bool
	env     []string
	init    func(store string) []string             // makes the store; nil if nothing has to
	save    func(store, src string, e int) []string // commands are run in src
	restore func(store, dst string, e int) []string // in dst
}

func shell(format string, args ...any) []string {
	return []string{"sh", "-c", fmt.Sprintf("set -e; "+format, args...)}
}

// tools returns ours, by level, then the peers at their default and their fastest
// levels.
func tools(self string) []tool {
	var list []tool
	for _, l := range levels {
		list = append(list, tool{
			name: "lockstep " + l.name, ours: true, sealed: l.sealed,
			save: func(store, src string, e int) []string {
				return []string{self, "-child", "save", l.name, store, fmt.Sprint(e), src}
			},
			restore: func(store, dst string, e int) []string {
				return []string{self, "-child", "restore", l.name, store, fmt.Sprint(e), dst}
			},
		})
	}
	for _, z := range []string{"-3", "-1", "-3 --long=31", "-1 --long=31"} {
		list = append(list, tarZstd(z))
	}
	for _, c := range []string{"auto", "off"} {
		list = append(list, restic(c))
	}
	for _, c := range []string{"lz4", "none"} {
		list = append(list, borg(c))
	}
	return append(list, casync("zstd")) // its default is its fastest: gzip and xz take longer
}

// tarZstd is a tarball for each epoch; -3 is the default level of zstd.
func tarZstd(level string) tool {
	return tool{
		name: "tar+zstd " + level, program: "zstd",
		save: func(store, _ string, e int) []string {
			return shell("mkdir -p %[1]s; tar -cf - . | zstd -q %[2]s -o %[1]s/%[3]d.tar.zst", store, level, e)
		},
		restore: func(store, _ string, e int) []string {
			return shell("zstd -q -d --long=31 -c %s/%d.tar.zst | tar -xf -", store, e)
		},
	}
}

func restic(compression string) tool {
	return tool{
		name: "restic " + compression, program: "restic", sealed: true,
		env:  []string{"RESTIC_PASSWORD=benchmark"},
		init: func(store string) []string { return shell("restic -q --no-cache -r %s init", store) },
		save: func(store, _ string, e int) []string {
			return shell("restic -q --no-cache -r %s --compression %s backup --tag epoch%d .", store, compression, e)
		},
		restore: func(store, dst string, e int) []string {
			return shell("restic -q --no-cache -r %s restore latest --tag epoch%d --target %s", store, e, dst)
		},
	}
}

func borg(compression string) tool {
	return tool{
		name: "borg " + compression, program: "borg", sealed: true,
		env:  []string{"BORG_PASSPHRASE=benchmark", "BORG_RELOCATED_REPO_ACCESS_IS_OK=yes"},
		init: func(store string) []string { return shell("borg init -e repokey %s", store) },
		save: func(store, _ string, e int) []string {
			return shell("borg create -C %s %s::epoch%d .", compression, store, e)
		},
		restore: func(store, _ string, e int) []string { return shell("borg extract %s::epoch%d", store, e) },
	}
}

func casync(compression string) tool {
	return tool{
		name: "casync " + compression, program: "casync",
		save: func(store, _ string, e int) []string {
			return shell("mkdir -p %[1]s; casync make --compression=%[2]s --with=unix --store=%[1]s/chunks.castr %[1]s/%[3]d.caidx . >/dev/null", store, compression, e)
		},
		restore: func(store, dst string, e int) []string {
			return shell("casync extract --with=unix --seed-output=no --store=%[1]s/chunks.castr %[1]s/%[2]d.caidx %[3]s", store, e, dst)
		},
	}
}

// missing says whether a tool's program is not installed.
func (t *tool) missing() bool {
	if t.program == "" {
		return false
	}
	_, err := exec.LookPath(t.program)
	return err != nil
}
