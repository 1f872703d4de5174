package main

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"

	"github.com/spf13/cobra"
	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/evenstep/evenstep/core/identity"
)

const (
	nodeAgent = "/run/evenstep/agent.sock" // where an agent for all users of a node listens
	// maxAnswerBytes bounds one message of the core's.
	maxAnswerBytes = 64 << 20
)

// coreFlags say which core a command asks.
type coreFlags struct {
	core string
	tls  identity.Files
}

func (f *coreFlags) add(cmd *cobra.Command) {
	cmd.Flags().StringVar(&f.core, "core", "", "`ADDRESS` of the core, or of an agent: unix:PATH or tcp:HOST:PORT")
	addTLS(cmd, &f.tls, "a controller", "the core's certificate")
}

// address is where the core is, or an agent that leads to it.
func (f *coreFlags) address() (address, error) {
	if f.core != "" {
		return parseAddressOf("--core", f.core)
	}
	if where := os.Getenv("EVENSTEP_ADDR"); where != "" {
		return parseAddressOf("EVENSTEP_ADDR", where)
	}
	if folder := os.Getenv("XDG_RUNTIME_DIR"); folder != "" {
		path := filepath.Join(folder, "evenstep", "core.sock")
		if _, err := os.Lstat(path); err == nil {
			return address{"unix", path}, nil
		}
	}
	if _, err := os.Lstat(nodeAgent); err == nil {
		return address{"unix", nodeAgent}, nil
	}
	return address{}, errors.New("--core: missing, and neither a core of yours nor this node's agent is there; " +
		"give unix:PATH or tcp:HOST:PORT")
}

// dial prepares the connection; TCP asks for certificates.
func (f *coreFlags) dial(a address) (*grpc.ClientConn, error) {
	target, creds := a.String(), insecure.NewCredentials()
	switch {
	case a.network == "tcp":
		config, err := f.tls.Client()
		if err != nil {
			return nil, err
		}
		target, creds = "dns:"+a.where, credentials.NewTLS(config)
	case f.tls.Given():
		return nil, fmt.Errorf("--tls-cert, --tls-key, --tls-ca: %s is no TCP address; leave them out", a)
	}
	return grpc.NewClient(target, grpc.WithTransportCredentials(creds),
		grpc.WithDefaultCallOptions(grpc.MaxCallRecvMsgSize(maxAnswerBytes)))
}
