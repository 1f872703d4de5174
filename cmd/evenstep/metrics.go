package main

import (
	"errors"
	"fmt"
	"net"
	"net/http"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/prometheus/client_golang/prometheus/collectors"
	"github.com/prometheus/client_golang/prometheus/promhttp"
	"golang.org/x/sys/unix"

	"github.com/evenstep/evenstep/plugin"
)

const (
	// maxScrapes bounds the scrapes at one time; Prometheus makes one.
	maxScrapes = 4
	// scrapeTime bounds one, from its first byte to the last of the answer.
	scrapeTime = 10 * time.Second
)

// serveMetrics serves what is collected at --metrics until stop; without one it does nothing.
func (f *serveFlags) serveMetrics(log hclog.Logger, all ...prometheus.Collector) (stop func(), err error) {
	if f.metrics == "" {
		return func() {}, nil
	}
	host, port, err := net.SplitHostPort(f.metrics)
	if err != nil {
		return nil, badInput(fmt.Errorf("--metrics: %.80q is not HOST:PORT; give one like :9464", f.metrics))
	}
	if host == "" {
		host = "127.0.0.1" // not to all the world, unless told
	}
	where := net.JoinHostPort(host, port)
	l, err := net.Listen("tcp", where)
	switch {
	case errors.Is(err, unix.EADDRINUSE):
		return nil, unreachable(fmt.Errorf("--metrics: %s is in use%s", where, byProcess(portHolder(where))))
	case err != nil:
		return nil, badInput(fmt.Errorf("--metrics: %w", err))
	}
	registry := prometheus.NewRegistry()
	registry.MustRegister(append(all, collectors.NewGoCollector(),
		collectors.NewProcessCollector(collectors.ProcessCollectorOpts{}))...)
	mux := http.NewServeMux()
	mux.Handle("GET /metrics", promhttp.HandlerFor(registry, promhttp.HandlerOpts{
		MaxRequestsInFlight: maxScrapes, Timeout: scrapeTime, ErrorHandling: promhttp.ContinueOnError}))
	server := &http.Server{Handler: mux, ReadTimeout: scrapeTime, WriteTimeout: 2 * scrapeTime, IdleTimeout: time.Minute,
		MaxHeaderBytes: 16 << 10, ErrorLog: log.StandardLogger(&hclog.StandardLoggerOptions{ForceLevel: hclog.Debug})}
	go func() { _ = server.Serve(l) }() // until it is closed
	log.Info("metrics", "address", l.Addr())
	return func() { server.Close() }, nil
}

// pluginHealth tells Prometheus of the plugins of a folder.
type pluginHealth struct{ folder *plugin.Folder }

var pluginHealthy = prometheus.NewDesc("evenstep_plugin_healthy",
	"Whether a plugin can be asked: 1, or 0 where it is refused, has died or does not start.", []string{"kind", "name"}, nil)

// Describe makes it a prometheus.Collector.
func (pluginHealth) Describe(to chan<- *prometheus.Desc) { to <- pluginHealthy }

// Collect tells the health of each; of one that starts just now, nothing.
func (h pluginHealth) Collect(to chan<- prometheus.Metric) {
	for _, p := range h.folder.Plugins {
		healthy, known := p.Health()
		if !known {
			continue
		}
		value := 0.0
		if healthy {
			value = 1
		}
		to <- prometheus.MustNewConstMetric(pluginHealthy, prometheus.GaugeValue, value, oneLine(string(p.Kind)), oneLine(p.Name))
	}
}
