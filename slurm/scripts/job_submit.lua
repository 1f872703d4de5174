-- JobSubmitPlugins=lua of slurm.conf; lies beside it. A job whose comment asks for Evenstep waits by a begin time for its
-- plan; with nothing of Evenstep's alive, Slurm starts it when that comes.
local hold_limit = 300 -- seconds

-- hold gives a new job its begin time. It runs under slurmctld's locks: no calls out, and nothing here can fail a job.
local function hold(job)
    local comment = job.comment
    if type(comment) ~= "string" or comment:sub(1, 9) ~= "evenstep " or comment:find(" | ", 1, true) then
        return
    end
    -- A begin time of the user's own stays, and Slurm takes no more than 1,024 bytes of comment.
    if (job.begin_time ~= nil and job.begin_time ~= 0) or #comment + #" | held" > 1024 then
        return
    end
    job.begin_time = os.time() + hold_limit
    job.comment = comment .. " | held"
end

function slurm_job_submit(job, partitions, user)
    pcall(hold, job)
    return slurm.SUCCESS
end

function slurm_job_modify(job, record, partitions, user)
    return slurm.SUCCESS
end

return slurm.SUCCESS
