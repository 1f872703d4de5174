package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/spf13/cobra"

	"github.com/evenstep/evenstep/core/identity"
)

// expiresSoon is how long before the end of a certificate it is worth a word.
const expiresSoon = 30 * 24 * time.Hour

func newTLSCommand() *cobra.Command {
	cmd := &cobra.Command{Use: "tls", Short: "Make the certificates of a shared core"}
	needsCommand(cmd)
	cmd.AddCommand(newTLSInitCommand())
	return cmd
}

func newTLSInitCommand() *cobra.Command {
	var names []string
	cmd := &cobra.Command{
		Use:   "init DIR",
		Short: "Make an authority and the certificates of core, nodes and controllers",
		Long: `Init makes in DIR an authority (ca.pem, ca.key) and the certificates that it signs: server for evenstep serve, node for
evenstep agent, controller for evenstep status and controllers. It prints each file that it made.

What is there stays as it is. So to renew a certificate, remove it and its key and run init again: the authority that
is there signs the new one, which clients trust already. Certificates live for a year, the authority for ten. Only init
needs ca.key: keep it off the nodes.

The core's certificate is for the names by which the nodes reach it: --name, else this host's name, localhost,
127.0.0.1 and ::1.`,
		Args: arguments(cobra.ExactArgs(1)),
		RunE: func(cmd *cobra.Command, args []string) error {
			names, err := serverNames(names)
			if err != nil {
				return badInput(err)
			}
			made, err := identity.Init(args[0], names, time.Now())
			for _, path := range made {
				if _, err := fmt.Fprintln(cmd.OutOrStdout(), path); err != nil {
					return fmt.Errorf("stdout: %w", err)
				}
			}
			if err != nil {
				return badInput(err)
			}
			return nil
		},
	}
	cmd.Flags().StringArrayVar(&names, "name", nil, "host name or IP address of the core; may be repeated")
	return cmd
}

// serverNames are the names that the core's certificate is for.
func serverNames(given []string) ([]string, error) {
	if len(given) == 0 {
		host, err := os.Hostname()
		if err != nil {
			return nil, fmt.Errorf("--name: missing, and this host's is not known: %w", err)
		}
		return []string{host, "localhost", "127.0.0.1", "::1"}, nil
	}
	for _, name := range given {
		if net.ParseIP(name) == nil && !isHostName(name) {
			return nil, fmt.Errorf("--name: %.80q is neither a host name nor an IP address; give one without a port", name)
		}
	}
	return given, nil
}

// isHostName says whether a certificate can be for the name: letters, digits, - and _ between dots.
func isHostName(name string) bool {
	label := 0
	for _, r := range name {
		switch {
		case r == '.' && label > 0:
			label = 0
		case r >= 'a' && r <= 'z', r >= 'A' && r <= 'Z', r >= '0' && r <= '9', r == '-', r == '_':
			label++
		default:
			return false
		}
	}
	return label > 0 && len(name) <= 253
}

// addTLS adds the flags of one end of mutual TLS.
func addTLS(cmd *cobra.Command, f *identity.Files, whose, others string) {
	flags := cmd.Flags()
	flags.StringVar(&f.Certificate, "tls-cert", "", "PEM `FILE` with the certificate of "+whose+", for tcp")
	flags.StringVar(&f.Key, "tls-key", "", "PEM `FILE` with its key")
	flags.StringVar(&f.Authorities, "tls-ca", "", "PEM `FILE` with the authorities that sign "+others)
}

// watchCertificate says in the log, at once and each day until ctx ends, what is wrong with the time of the certificate, if
// anything is.
func watchCertificate(ctx context.Context, f identity.Files, log hclog.Logger) {
	if !f.Given() {
		return
	}
	from, until, err := f.Valid()
	if err != nil {
		return // who needs it says so
	}
	tell := func() {
		if trouble := troubleOf(from, until, time.Now()); trouble != "" {
			log.Warn(trouble, "file", f.Certificate)
		}
	}
	tell()
	go func() {
		tick := time.NewTicker(24 * time.Hour)
		defer tick.Stop()
		for {
			select {
			case <-tick.C:
				tell()
			case <-ctx.Done():
				return
			}
		}
	}()
}

// troubleOf is what is wrong with a certificate's time; empty where nothing is.
func troubleOf(from, until, now time.Time) string {
	switch {
	case now.Before(from):
		return fmt.Sprintf("the certificate is not valid before %s; is this clock right?", from.Format(time.DateTime))
	case now.After(until):
		return fmt.Sprintf("the certificate expired on %s; renew it", until.Format(time.DateOnly))
	case until.Sub(now) < expiresSoon:
		return fmt.Sprintf("the certificate expires on %s; renew it", until.Format(time.DateOnly))
	}
	return ""
}
