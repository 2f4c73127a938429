#include <gtest/gtest.h>

#include <atomic>
#include <filesystem>
#include <fstream>
#include <thread>
#include <vector>

#include "cpu/core_quota.h"
#include "cpu/thread_pool.h"

namespace apr::cpu {
namespace {

TEST(ThreadPool, RunsEachTaskOnce) {
  for (const int n_threads : {1, 2, 3, 8}) {
    ThreadPool pool(n_threads);
    EXPECT_EQ(pool.n_threads(), n_threads);
    for (const int64_t n_tasks : {0, 1, 2, 7, 1000}) {
      std::vector<int> runs(static_cast<size_t>(n_tasks),
                            0);  // plain ints: a race is TSan's to see
      pool.run(n_tasks, [&](int64_t task_idx) { ++runs[static_cast<size_t>(task_idx)]; });
      EXPECT_EQ(runs, std::vector<int>(static_cast<size_t>(n_tasks), 1));
    }
  }
}

TEST(ThreadPool, SeesTheTasksOfTheJobAtHandInManyShortJobs) {
  ThreadPool pool(4);
  std::vector<int64_t> values(64, 0);
  for (int64_t job = 1; job <= 20000; ++job) {
    const int64_t n_tasks = 1 + job % 64;
    pool.run(n_tasks,
             [&values, job](int64_t task_idx) { values[static_cast<size_t>(task_idx)] += job; });
  }
  for (int64_t task_idx = 0; task_idx < 64; ++task_idx) {
    int64_t expected = 0;
    for (int64_t job = 1; job <= 20000; ++job) {
      expected += task_idx < 1 + job % 64 ? job : 0;
    }
    EXPECT_EQ(values[static_cast<size_t>(task_idx)], expected);
  }
}

TEST(ThreadPool, WakesThreadsThatSleptBetweenJobs) {
  ThreadPool pool(2);
  for (int job = 0; job < 5; ++job) {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    // Two tasks that wait for each other: both threads must come.
    std::atomic<int> n_arrived{0};
    pool.run(2, [&](int64_t) {
      ++n_arrived;
      while (n_arrived.load() < 2) {
        std::this_thread::yield();
      }
    });
    EXPECT_EQ(n_arrived.load(), 2);
  }
}

TEST(ThreadPool, FinishesAJobWithoutThreadsThatHaveNotStarted) {
  // Far more threads than cores: most never reach a job before the others have done it.
  ThreadPool pool(64);
  for (int job = 0; job < 200; ++job) {
    std::atomic<int64_t> sum{0};
    pool.run(3, [&](int64_t task_idx) { sum += task_idx; });
    ASSERT_EQ(sum.load(), 3);
  }
}

TEST(ThreadPool, StartsAndStopsWithoutAJob) {
  for (int i = 0; i < 50; ++i) {
    ThreadPool pool(3);
  }
}

TEST(AvailableCores, LiesWithinTheMachine) {
  EXPECT_GE(available_cores(), 1);
  EXPECT_LE(available_cores(), static_cast<int>(std::thread::hardware_concurrency()));
}

// A tree of control group files under the test's own folder.
class CoreQuota : public ::testing::Test {
 protected:
  void SetUp() override {
    root_ = std::filesystem::path(::testing::TempDir()) /
            (std::string("apr_quota_") +
             ::testing::UnitTest::GetInstance()->current_test_info()->name());
    std::filesystem::remove_all(root_);
  }
  void TearDown() override { std::filesystem::remove_all(root_); }

  void write(const std::string& name, const std::string& text) {
    std::filesystem::create_directories((root_ / name).parent_path());
    std::ofstream(root_ / name) << text;
  }
  std::optional<int> quota() {
    return cgroup_core_quota((root_ / "membership").string(), root_.string());
  }

  std::filesystem::path root_;
};

TEST_F(CoreQuota, IsNoneWithoutFilesOrLimit) {
  EXPECT_EQ(quota(), std::nullopt);
  write("membership", "0::/app\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("app/cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), std::nullopt);
}

TEST_F(CoreQuota, RoundsUpToWholeCores) {
  write("membership", "0::/app\n");
  write("app/cpu.max", "150000 100000\n");
  EXPECT_EQ(quota(), 2);
  write("app/cpu.max", "1000 100000\n");
  EXPECT_EQ(quota(), 1);
}

TEST_F(CoreQuota, TakesTheSmallestOfTheParents) {
  write("membership", "0::/outer/inner\n");
  write("outer/inner/cpu.max", "800000 100000\n");
  write("outer/cpu.max", "300000 100000\n");
  write("cpu.max", "max 100000\n");
  EXPECT_EQ(quota(), 3);
}

TEST_F(CoreQuota, ReadsVersionOne) {
  write("membership", "3:memory:/x\n2:cpuacct,cpu:/job\n");
  write("cpu/job/cpu.cfs_quota_us", "-1\n");
  write("cpu/job/cpu.cfs_period_us", "100000\n");
  EXPECT_EQ(quota(), std::nullopt);
  write("cpu/job/cpu.cfs_quota_us", "400000\n");
  EXPECT_EQ(quota(), 4);
}

TEST_F(CoreQuota, IgnoresNonsense) {
  write("membership", "nonsense\n0::/app\n");
  for (const char* text : {"", "abc def\n", "100000 0\n", "-5 100000\n", "100000 -1\n"}) {
    write("app/cpu.max", text);
    EXPECT_EQ(quota(), std::nullopt) << text;
  }
}

}  // namespace
}  // namespace apr::cpu
