package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"

	evenstepv1 "github.com/evenstep/evenstep/proto/evenstep/v1"
)

// trained is what a job of two devices looks like, the second of which is three times as fast as the first.
func openTrained(t *testing.T, s evenstepv1.Balancer_BalanceClient) *evenstepv1.Allocation {
	t.Helper()
	open := &evenstepv1.Open{Job: "job", GlobalBatch: 64, Workload: "w", ChooseStart: true, Workers: []*evenstepv1.Worker{
		{DeviceType: "cpu", Device: "slow"}, {DeviceType: "cpu", Device: "fast"}}}
	if err := s.Send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Open{Open: open}}); err != nil {
		t.Fatal(err)
	}
	r, err := s.Recv()
	if err != nil {
		t.Fatal(err)
	}
	return r.GetOpened().GetAllocation()
}

// train runs steps of the job with the sizes that the core says.
func train(t *testing.T, s evenstepv1.Balancer_BalanceClient, sizes []uint32, steps uint64) {
	t.Helper()
	for step := range steps {
		report := &evenstepv1.StepReport{Step: step, NextFreeStep: step + 1}
		for i, perSample := range []float64{0.003, 0.001} {
			report.Workers = append(report.Workers, &evenstepv1.WorkerReport{Rank: uint32(i), Samples: float64(sizes[i]),
				ComputeSeconds: perSample * float64(sizes[i])})
		}
		if err := s.Send(&evenstepv1.BalanceRequest{Message: &evenstepv1.BalanceRequest_Report{Report: report}}); err != nil {
			t.Fatal(err)
		}
		r, err := s.Recv()
		if err != nil {
			t.Fatal(err)
		}
		sizes = r.GetAllocation().GetBatchSizes()
	}
}

func TestTheSecondRunStartsFromWhatTheFirstLearned(t *testing.T) {
	for name, private := range map[string]bool{"a shared core": false, "a private core": true} {
		t.Run(name, func(t *testing.T) {
			file := filepath.Join(t.TempDir(), "state", "profiles.db")
			t.Setenv("EVENSTEP_PROFILES", file)
			for run := range 2 {
				address, _, _ := socketIn(t)
				args := []string{"--listen", address}
				if private {
					args = append(args, "--private")
				}
				s := start(t, args...)
				s.listening()
				stream := dialStream(t, address)
				a := openTrained(t, stream)
				if want := uint32([]int{32, 16}[run]); a.GetBatchSizes()[0] != want {
					t.Fatalf("run %d starts with %v: %s", run, a.GetBatchSizes(), a.GetReason())
				}
				if run == 1 && !strings.Contains(a.GetReason(), "profiles of w: 2 workers by their own device's") {
					t.Errorf("got %q", a.GetReason())
				}
				train(t, stream, a.GetBatchSizes(), 30)
				if private {
					s.stdin.Close()
				} else {
					s.signal(syscall.SIGTERM)
				}
				_ = s.ended()
			}
			out, err := exec.Command("evenstep", "profiles", "list").CombinedOutput()
			if err != nil || strings.Count(string(out), "\n") != 2 {
				t.Fatalf("%v: %s", err, out)
			}
		})
	}
}

func TestServeSaysWhoHoldsItsProfiles(t *testing.T) {
	file := filepath.Join(t.TempDir(), "profiles.db")
	first, _, _ := socketIn(t)
	holder := start(t, "--listen", first, "--profiles", file)
	holder.listening()
	second, _, _ := socketIn(t)
	start(t, "--listen", second, "--profiles", file).exits(4, "--profiles: "+file,
		fmt.Sprintf("held by process %d", holder.cmd.Process.Pid))
	start(t, "--listen", second, "--profiles", t.TempDir()).exits(2, "--profiles: ")
	out, err := exec.Command("evenstep", "profiles", "list", "--profiles", file).CombinedOutput()
	if exit := new(exec.ExitError); !errors.As(err, &exit) || exit.ExitCode() != 4 ||
		!strings.Contains(string(out), fmt.Sprintf("held by process %d\n", holder.cmd.Process.Pid)) {
		t.Errorf("%v: %s", err, out)
	}
}

// Without having asked for a file, a user may run as many cores as they like.
func TestServeSharesAFileThatWasNotAskedFor(t *testing.T) {
	t.Setenv("EVENSTEP_PROFILES", "")
	for range 2 {
		address, _, _ := socketIn(t)
		s := start(t, "--listen", address)
		s.listening()
		defer func() {
			s.signal(syscall.SIGTERM)
			s.exits(0)
		}()
	}
}

// dialStream is a stream to the core at the target, without an open.
func dialStream(t *testing.T, target string) evenstepv1.Balancer_BalanceClient {
	t.Helper()
	conn, err := grpc.NewClient(target, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { conn.Close() })
	ctx, cancel := context.WithTimeout(context.Background(), 20*time.Second)
	t.Cleanup(cancel)
	s, err := evenstepv1.NewBalancerClient(conn).Balance(ctx)
	if err != nil {
		t.Fatal(err)
	}
	return s
}
