package main

import (
	"context"
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

	"github.com/evenstep/evenstep/core/identity"
	"github.com/evenstep/evenstep/core/placement"
	"github.com/evenstep/evenstep/core/service"
	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/policy"
)

// drainTime bounds how long a server that was told to end waits for its clients to notice.
const drainTime = 2 * time.Second

// serveFlags are what the user said.
type serveFlags struct {
	listen            []string
	tls               identity.Files
	insecure, private bool
	plugins, profiles string
	metrics           string
}

func newServeCommand() *cobra.Command {
	var f serveFlags
	cmd := &cobra.Command{
		Use:   "serve",
		Short: "Serve the core to training jobs",
		Long: `Serve runs the core: training jobs report their steps and get their batch sizes over gRPC.

It prints "listening ADDRESS" for each address when it is ready. A unix socket lets in its own user only; TCP asks for
mutual TLS, in which every client shows a certificate that --tls-ca signed. A node's certificate, as evenstep tls init
makes it, brings along which user of the node calls, as its agent knows; a user sees and steers only their own jobs, and
so do clients with other subjects in their certificates. docs/core.md says how to install a core for a cluster.

Plugins of kind policy in the plugin folder are policies that a job, or who wants jobs placed, may ask for by their
name, as for the built-in ones: see evenstep plugins. What jobs show of devices is kept in the file of profiles, see
evenstep profiles; it is held while the core serves.

With --metrics it tells Prometheus, at /metrics, how long steps take, what of them is wait, and how it decides: anybody
who reaches that address may read them. They name no job and no user; evenstep status does, to whom they belong.

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
	addTLS(cmd, &f.tls, "this server", "clients' certificates")
	flags.StringVar(&f.profiles, "profiles", "",
		"`FILE` of what is learned of devices (default EVENSTEP_PROFILES, else evenstep/profiles.db in the state folder)")
	flags.StringVar(&f.metrics, "metrics", "",
		"`ADDRESS` to serve Prometheus metrics at: HOST:PORT, or :PORT for this node alone")
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
	watchCertificate(ctx, f.tls, log)
	plugins, err := openPlugins(f.plugins, log)
	if err != nil {
		return err
	}
	defer plugins.Close()
	keeper, err := f.keepProfiles(log)
	if err != nil {
		return err
	}
	balancer := service.NewBalancer(version, jobPolicies(plugins, log), log)
	learning, told := context.WithCancel(ctx)
	defer learn(learning, balancer, keeper, log)()
	defer told()
	place := policy.NewPlace(plugins.OfKind(plugin.Policy), placement.Place, log)
	placer := service.NewPlacer(service.Place(place))
	stopMetrics, err := f.serveMetrics(log, balancer, placer, pluginHealth{plugins})
	if err != nil {
		return err
	}
	defer stopMetrics()
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
	switch {
	case f.tls.Given() && f.insecure:
		return nil, errors.New("--insecure: contradicts --tls-cert, --tls-key and --tls-ca; give one or the other")
	case f.tls.Given():
		config, err := f.tls.Server()
		if err != nil {
			return nil, err
		}
		return credentials.NewTLS(config), nil
	}
	for _, a := range addresses {
		if a.network == "tcp" && !f.insecure {
			return nil, fmt.Errorf("--listen: %s needs --tls-cert, --tls-key and --tls-ca; --insecure does without", a)
		}
	}
	return insecure.NewCredentials(), nil
}

// removeFolders removes the folders of the sockets, as far as nothing else is in them.
func removeFolders(addresses []address) {
	for _, a := range addresses {
		if a.network == "unix" {
			os.Remove(filepath.Dir(a.where))
		}
	}
}
