package main

import (
	"context"
	"crypto/tls"
	"crypto/x509"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"github.com/spf13/cobra"
	"google.golang.org/grpc/credentials"
	"google.golang.org/grpc/credentials/insecure"

	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/service"
	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/policy"
)

// drainTime bounds how long a server that was told to end waits for its clients to notice.
const drainTime = 2 * time.Second

// serveFlags are what the user said.
type serveFlags struct {
	listen                 []string
	tlsCert, tlsKey, tlsCA string
	insecure, private      bool
	plugins                string
}

func newServeCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the core to training jobs",
		Long: `Serve runs the core: training jobs report their steps and get their batch sizes over gRPC.

It prints "listening ADDRESS" for each address when it is ready. A unix socket lets in its own user only; TCP asks for
mutual TLS, in which every client shows a certificate that --tls-ca signed. A client sees and steers only the jobs
that were opened with the same subject in the certificate.

Plugins of kind policy in the plugin folder are policies that a job, or who wants jobs placed, may ask for by their
name, as for the built-in ones: see evenstep plugins.

SIGTERM and SIGINT end it once its clients are told; a second one ends it at once.`,
		Args: arguments(cobra.NoArgs),
		RunE: func(cmd *cobra.Command, _ []string) error {
			ctx, stop := untilTold(f.private)
			defer stop()
			return serve(ctx, f, cmd.OutOrStdout())
		},
	}
	flags := cmd.Flags()
	flags.StringArrayVar(&f.listen, "listen", nil,
		"`ADDRESS`: unix:PATH or tcp:HOST:PORT; may be repeated (default unix:$XDG_RUNTIME_DIR/evenstep/core.sock)")
	flags.StringVar(&f.tlsCert, "tls-cert", "", "PEM `FILE` with the certificate of this server, for tcp")
	flags.StringVar(&f.tlsKey, "tls-key", "", "PEM `FILE` with its key")
	flags.StringVar(&f.tlsCA, "tls-ca", "", "PEM `FILE` with the authorities that sign clients' certificates")
	flags.BoolVar(&f.insecure, "insecure", false, "let anybody who reaches a tcp address in, without TLS")
	flags.BoolVar(&f.private, "private", false,
		"belong to the process at the other end of stdin: end with it, and remove the folder of the socket")
	_ = flags.MarkHidden("private")
	addPluginDir(cmd, &f.plugins)
	return cmd
}

// untilTold returns a context that ends when the process is told to. A second signal ends the process on the spot.
//
// A private server is told by the end of its stdin as well, which comes however the parent ends. What the terminal
// sends to all of the foreground at once is the parent's to judge, and that nobody reads its output any more is no
// reason to die with the socket left behind.
func untilTold(private bool) (context.Context, context.CancelFunc) {
	ctx, cancel := context.WithCancel(context.Background())
	signals := make(chan os.Signal, 2)
	if private {
		signal.Ignore(syscall.SIGINT, syscall.SIGHUP, syscall.SIGPIPE)
		signal.Notify(signals, syscall.SIGTERM)
		go func() {
			_, _ = io.Copy(io.Discard, os.Stdin)
			cancel()
		}()
	} else {
		signal.Notify(signals, syscall.SIGTERM, syscall.SIGINT)
	}
	go func() {
		<-signals
		cancel()
		s := <-signals
		os.Exit(128 + int(s.(syscall.Signal)))
	}()
	return ctx, cancel
}

// serve serves until ctx ends, which is success.
func serve(ctx context.Context, f serveFlags, out io.Writer) error {
	addresses, err := f.addresses()
	if err != nil {
		return badInput(err)
	}
	tcp, err := f.credentials(addresses)
	if err != nil {
		return badInput(err)
	}
	if f.private {
		defer removeFolders(addresses)
	}
	log := newLog()
	plugins, err := openPlugins(f.plugins, log)
	if err != nil {
		return err
	}
	defer plugins.Close()
	balancer := service.NewBalancer(version, jobPolicies(plugins, log), log)
	place := policy.NewPlace(plugins.OfKind(plugin.Policy), placement.Place, log)
	placer := service.NewPlacer(service.Place(place))
	servers := map[string]*service.Server{
		"unix": service.NewServer(balancer, placer, insecure.NewCredentials(), log),
		"tcp":  service.NewServer(balancer, placer, tcp, log),
	}
	defer func() {
		balancer.Stop()
		for _, s := range servers {
			s.Stop(drainTime)
		}
	}()
	ended := make(chan error, len(addresses))
	for i, a := range addresses {
		l, at, err := listen(ctx, a)
		switch {
		case err != nil && ctx.Err() != nil:
			return nil
		case err != nil:
			return err
		}
		// The server does it too, but only once it has begun to serve.
		defer l.Close()
		addresses[i] = at
		go func() { ended <- servers[a.network].Serve(l) }()
	}
	for _, a := range addresses {
		// A private server whose parent reads no more is about to meet the end of its stdin.
		if _, err := fmt.Fprintln(out, "listening", a); err != nil && !f.private {
			return fmt.Errorf("stdout: %w", err)
		}
	}
	select {
	case <-ctx.Done():
		return nil
	case err := <-ended:
		return err
	}
}

func (f *serveFlags) addresses() ([]address, error) {
	if len(f.listen) == 0 {
		folder := os.Getenv("XDG_RUNTIME_DIR")
		if folder == "" {
			return nil, errors.New("--listen: missing, and XDG_RUNTIME_DIR is not set; give unix:PATH or tcp:HOST:PORT")
		}
		f.listen = []string{"unix:" + filepath.Join(folder, "evenstep", "core.sock")}
	}
	var addresses []address
	for _, s := range f.listen {
		a, err := parseAddress(s)
		if err != nil {
			return nil, err
		}
		addresses = append(addresses, a)
	}
	return addresses, nil
}

// credentials are what clients on TCP have to show.
func (f *serveFlags) credentials(addresses []address) (credentials.TransportCredentials, error) {
	given := f.tlsCert != "" || f.tlsKey != "" || f.tlsCA != ""
	switch {
	case given && f.insecure:
		return nil, errors.New("--insecure: contradicts --tls-cert, --tls-key and --tls-ca; give one or the other")
	case given:
		return f.mutualTLS()
	}
	for _, a := range addresses {
		if a.network == "tcp" && !f.insecure {
			return nil, fmt.Errorf("--listen: %s needs --tls-cert, --tls-key and --tls-ca; --insecure does without", a)
		}
	}
	return insecure.NewCredentials(), nil
}

// mutualTLS reads the certificates.
func (f *serveFlags) mutualTLS() (credentials.TransportCredentials, error) {
	if f.tlsCert == "" || f.tlsKey == "" || f.tlsCA == "" {
		return nil, errors.New("--tls-cert, --tls-key, --tls-ca: one is missing; give all three")
	}
	cert, err := tls.LoadX509KeyPair(f.tlsCert, f.tlsKey)
	if err != nil {
		return nil, fmt.Errorf("--tls-cert, --tls-key: %w", err)
	}
	pem, err := os.ReadFile(f.tlsCA)
	if err != nil {
		return nil, fmt.Errorf("--tls-ca: %w", err)
	}
	authorities := x509.NewCertPool()
	if !authorities.AppendCertsFromPEM(pem) {
		return nil, fmt.Errorf("--tls-ca: %s holds no PEM certificate", f.tlsCA)
	}
	return credentials.NewTLS(&tls.Config{
		MinVersion:   tls.VersionTLS13,
		Certificates: []tls.Certificate{cert},
		ClientAuth:   tls.RequireAndVerifyClientCert,
		ClientCAs:    authorities,
	}), nil
}

// removeFolders removes the folders of the sockets, as far as nothing else is in them.
func removeFolders(addresses []address) {
	for _, a := range addresses {
		if a.network == "unix" {
			os.Remove(filepath.Dir(a.where))
		}
	}
}
