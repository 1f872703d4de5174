package slurm

import (
	"context"
	"fmt"
	"os"
	"os/user"
	"path/filepath"
	"strings"
)

// Finding is something that is not right with an installation.
type Finding string

// Check looks at the installation from this host, as this user: can Slurm be asked and told, is its configuration as
// docs/slurm.md has it, are there devices to place jobs on?
func Check(ctx context.Context) []Finding {
	text, err := command(ctx, "scontrol", "--version")
	if err != nil {
		return []Finding{Finding(fmt.Sprintf("scontrol cannot be run: %v", err))}
	}
	var found []Finding
	add := func(format string, args ...any) { found = append(found, Finding(fmt.Sprintf(format, args...))) }
	if v, err := parseVersion(text); err != nil {
		add("%v", err)
	} else if !v.supported() {
		add("Slurm %v is none of 22.05 to 25.11, with which Evenstep is known to work", v)
	}
	config, err := command(ctx, "scontrol", "show", "config")
	if err != nil {
		add("slurmctld does not answer: %v", err)
		return found
	}
	found = append(found, checkConfig(parseConfig(config))...)
	v, err := look(ctx)
	if err != nil {
		add("the queue cannot be read: %v", err)
		return found
	}
	devices := 0
	for _, n := range v.nodes {
		if len(n.devices) > 1 {
			add("node %s has devices of several types: only jobs that name a type are placed on it", n.name)
		}
		if n.devices[untyped] > 0 {
			add("node %s has devices without a type; give Gres=gpu:TYPE:%d, or their speeds are not known apart", n.name,
				n.devices[untyped])
		}
		devices += len(n.devices)
	}
	if devices == 0 {
		add("no node has devices; set GresTypes=gpu and Gres=gpu:TYPE:N")
	}
	return found
}

// parseConfig reads scontrol show config: KEY = VALUE, padded.
func parseConfig(text string) map[string]string {
	config := map[string]string{}
	for _, line := range strings.Split(text, "\n") {
		if key, value, is := strings.Cut(line, "="); is {
			if value = strings.TrimSpace(value); value == "(null)" {
				value = ""
			}
			config[strings.TrimSpace(key)] = value
		}
	}
	return config
}

func checkConfig(config map[string]string) (found []Finding) {
	add := func(format string, args ...any) { found = append(found, Finding(fmt.Sprintf(format, args...))) }
	for _, hook := range []struct{ key, script, costs string }{
		{"Prolog", "prolog", "tasks are not told their batch sizes"},
		{"Epilog", "epilog", "what the prolog keeps of jobs stays on the nodes"},
		{"TaskProlog", "task-prolog", "tasks are not told their batch sizes"},
	} {
		value := config[hook.key]
		// From 23.02 on there may be several, as Prolog[0].
		for i := 0; value == "" && i < 8; i++ {
			if v := config[fmt.Sprintf("%s[%d]", hook.key, i)]; filepath.Base(v) == hook.script {
				value = v
			}
		}
		switch info, err := os.Stat(value); {
		case value == "":
			add("%s= is not set in slurm.conf: %s", hook.key, hook.costs)
		case filepath.Base(value) != hook.script:
			add("%s=%s is not Evenstep's; call Evenstep's %s from it, or %s", hook.key, value, hook.script, hook.costs)
		case err != nil:
			add("%s=%s cannot be found on this host: %v", hook.key, value, err)
		case info.Mode()&0o111 == 0:
			add("%s=%s is not executable: nodes would be drained", hook.key, value)
		case info.Mode()&0o022 != 0:
			add("%s=%s may be written by others than its owner", hook.key, value)
		}
	}
	if config["SelectType"] == "select/linear" {
		add("SelectType=select/linear gives whole nodes to jobs, which are planned by devices; use select/cons_tres")
	}
	me, err := user.Current()
	if owner, _, _ := strings.Cut(config["SlurmUser"], "("); err == nil && me.Username != owner && me.Uid != "0" {
		level, err := command(context.Background(), "sacctmgr", "-n", "-P", "show", "user", me.Username, "format=AdminLevel")
		if level = strings.TrimSpace(level); err != nil || level != "Operator" && level != "Administrator" {
			add("user %s is no operator of Slurm's: it cannot steer the jobs of others; run: sacctmgr modify user %s set AdminLevel=Operator",
				me.Username, me.Username)
		}
	}
	return found
}
