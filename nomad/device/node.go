package device

import (
	"context"
	"sync"
	"time"

	"github.com/hashicorp/go-hclog"
	"google.golang.org/grpc"
	"google.golang.org/grpc/backoff"
	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/credentials/insecure"
	"google.golang.org/grpc/status"

	"github.com/evenstep/evenstep/plugin/devices"
	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

const (
	agentPatience = 500 * time.Millisecond // Nomad waits for the first answer as it starts
	corePatience  = 5 * time.Second
	ratesPause    = 30 * time.Second // between two questions to the core, which every node asks
	mostTypes     = 256              // that the core may be asked for at once
)

// node is what is known of this node, by its agent.
type node struct {
	socket string // path of the agent's
	conn   *grpc.ClientConn
	log    hclog.Logger

	mu        sync.Mutex
	inventory inventory
	speeds    speeds
	toCore    bool // the agent connects to a core
	ratesNext time.Time

	agentTrouble, coreTrouble trouble
}

// newNode prepares the connection to the agent, which is made when it is needed.
func newNode(socket string, log hclog.Logger) (*node, error) {
	conn, err := grpc.NewClient("unix:"+socket, grpc.WithTransportCredentials(insecure.NewCredentials()),
		// It notices soon that the agent is back.
		grpc.WithConnectParams(grpc.ConnectParams{MinConnectTimeout: time.Second, Backoff: backoff.Config{
			BaseDelay: 100 * time.Millisecond, Multiplier: 2, Jitter: 0.2, MaxDelay: 2 * time.Second}}))
	if err != nil {
		return nil, err
	}
	return &node{socket: socket, conn: conn, log: log}, nil
}

func (n *node) close() { _ = n.conn.Close() } // fails only if it was closed before

// report asks the agent how the devices are.
func (n *node) report(ctx context.Context) (devices.Report, error) {
	ctx, cancel := context.WithTimeout(ctx, agentPatience)
	defer cancel()
	return devices.Ask(ctx, n.conn)
}

// look asks the agent which devices there are. Without an answer they stay what they were.
func (n *node) look(ctx context.Context, now time.Time) {
	r, err := n.report(ctx)
	if ctx.Err() != nil {
		return
	}
	n.agentTrouble.tell(n.log, "the agent", err)
	if err != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.inventory.learn(r, now)
}

// rates asks the core, through the agent, how fast workloads run, when that is due. Without an answer speeds stay what
// they were.
func (n *node) rates(ctx context.Context, now time.Time) {
	n.mu.Lock()
	types := n.inventory.types()
	due := len(types) > 0 && !now.Before(n.ratesNext)
	n.mu.Unlock()
	if !due {
		return
	}
	asked, cancel := context.WithTimeout(ctx, corePatience)
	defer cancel()
	r, err := evenstepv1.NewProfilesClient(n.conn).Rates(asked,
		&evenstepv1.RatesRequest{Types: types[:min(len(types), mostTypes)]})
	if ctx.Err() != nil {
		return
	}
	n.mu.Lock()
	defer n.mu.Unlock()
	n.ratesNext = now.Add(ratesPause)
	// An agent without a core has no such service; one with a core that is away has.
	n.toCore = status.Code(err) != codes.Unimplemented
	if n.toCore {
		n.coreTrouble.tell(n.log, "the core", err)
	}
	if err == nil {
		n.speeds.learn(r.GetRates(), now)
	}
}

// trouble is told when it begins, becomes another or ends, not each time that it is met.
type trouble struct{ last codes.Code }

func (t *trouble) tell(log hclog.Logger, who string, err error) {
	code := status.Code(err)
	switch {
	case code == t.last:
		return
	case err == nil:
		log.Info(who + " answers")
	default:
		log.Warn(who+" does not answer; what it said before holds", "error", status.Convert(err).Message())
	}
	t.last = code
}
