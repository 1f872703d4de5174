package slurmtest

import (
	"fmt"
	"os"
	"path/filepath"
)

// service starts a daemon that the cluster needs before its own.
func (c *Cluster) service(name string, args ...string) {
	c.t.Helper()
	d := c.daemon(name, args...)
	c.services = append(c.services, d)
	d.Start()
}

// configureAccounts writes what slurmdbd reads, and returns the lines of slurm.conf that name it.
func (c *Cluster) configureAccounts(user string) string {
	c.t.Helper()
	ports := freePorts(c.t, 2)
	plugins, _ := filepath.Glob(filepath.Join(c.root, "usr/lib/*/slurm-wlm")) // configure has found it
	c.write("slurmdbd.conf", fmt.Sprintf(`AuthType=auth/munge
AuthInfo=socket=%s
DbdHost=localhost
DbdAddr=127.0.0.1
DbdPort=%d
SlurmUser=%s
PidFile=%s
PluginDir=%s
StorageType=accounting_storage/mysql
StorageHost=127.0.0.1
StoragePort=%d
StorageUser=slurm
StoragePass=none
`, c.path("munge.socket"), ports[0], user, c.path("slurmdbd.pid"), plugins[0], ports[1]), 0o600)
	if err := os.Mkdir(c.path("database"), 0o700); err != nil {
		c.t.Fatal(err)
	}
	c.database = []string{"--no-defaults", "--user=" + user, "--datadir=" + c.path("database"), "--socket=" + c.path("database.socket"),
		"--pid-file=" + c.path("database.pid"), "--bind-address=127.0.0.1", fmt.Sprintf("--port=%d", ports[1]),
		// Whoever reaches it is let in: it holds nothing but the test's accounts.
		"--skip-grant-tables", "--lc-messages-dir=" + filepath.Join(c.root, "usr/share/mysql")}
	// The password is where munge is.
	return fmt.Sprintf(`AccountingStorageType=accounting_storage/slurmdbd
AccountingStorageHost=127.0.0.1
AccountingStoragePort=%d
AccountingStoragePass=%s`, ports[0], c.path("munge.socket"))
}

// startAccounts starts the database and slurmdbd, and makes the cluster and its operators known there; before slurmctld
// starts, since Debian's has died here of being told by slurmdbd of a user.
func (c *Cluster) startAccounts(operators []string) {
	c.t.Helper()
	c.service("mariadbd", c.database...)
	c.WaitFor("the database", func() bool { _, err := os.Stat(c.path("database.socket")); return err == nil })
	c.service("slurmdbd", "-D")
	c.WaitFor("slurmdbd", func() bool { _, err := c.Try("sacctmgr", "-n", "show", "cluster"); return err == nil })
	c.Run("sacctmgr", "-i", "add", "cluster", "slurmtest")
	for _, user := range operators {
		c.Run("sacctmgr", "-i", "add", "user", user, "account=root", "adminlevel=Operator")
	}
}
