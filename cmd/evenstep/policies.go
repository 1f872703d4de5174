package main

import (
	"github.com/hashicorp/go-hclog"

	"github.com/evenstep/evenstep/core/service"
	"github.com/evenstep/evenstep/core/sizing"
	"github.com/evenstep/evenstep/plugin"
	"github.com/evenstep/evenstep/plugin/policy"
)

// policyNames are the built-in policies that a job may ask for, the default first.
func policyNames() (names []string) {
	for _, k := range sizing.Kinds() {
		if !k.Naive {
			names = append(names, k.Name)
		}
	}
	return names
}

// jobPolicies are all policies that a job may ask for: the built-in ones and those of plugins.
func jobPolicies(plugins *plugin.Folder, log hclog.Logger) service.Policies {
	policies := service.Policies{}
	add := func(name string, make sizing.Constructor) {
		policies[name] = func(p sizing.Problem, start []int) (service.Policy, error) { return make(p, start) }
	}
	for _, p := range plugins.OfKind(plugin.Policy) {
		add(p.Name, policy.New(p, log))
	}
	for _, p := range plugins.Plugins {
		if p.Refused != nil {
			log.Warn("a plugin is refused", "plugin", p.Path, "error", p.Refused)
		}
	}
	for _, name := range policyNames() {
		kind, _ := sizing.Named(name)
		add(name, kind.New)
	}
	return policies
}
