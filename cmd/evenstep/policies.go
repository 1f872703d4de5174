package main

import (
	"fmt"
	"slices"
	"strings"

	"github.com/hashicorp/go-hclog"

	"github.com/evenstep/evenstep/core/placement"
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

// placementPolicies are the built-in policies that place jobs, but for those that size batches too.
func placementPolicies() []string {
	return slices.DeleteFunc(slices.Clone(placement.Policies), func(name string) bool {
		return slices.Contains(kindNames(), name)
	})
}

// policyPlugin is the plugin of a policy that is not built in. The error says what --policy may be instead, and where
// there is one that is refused, why.
func policyPlugin(plugins *plugin.Folder, name string, builtin []string) (*plugin.External, error) {
	for _, p := range plugins.Plugins {
		switch {
		case p.Kind != plugin.Policy || p.Name != name:
		case p.Refused != nil:
			return nil, fmt.Errorf("--policy: the plugin %s is refused: %w", p.Path, p.Refused)
		default:
			return p, nil
		}
	}
	return nil, fmt.Errorf("--policy: unknown policy %q; give %s, or a plugin in %s", name, strings.Join(builtin, ", "),
		plugins.Path)
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
		if p.Refused != nil && p.Kind != plugin.Devices { // which the agent tells
			log.Warn("a plugin is refused", "plugin", p.Path, "error", p.Refused)
		}
	}
	for _, name := range policyNames() {
		kind, _ := sizing.Named(name)
		add(name, kind.New)
	}
	return policies
}
